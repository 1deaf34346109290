/* What every generated kernel sees: where its fields stand, which points it visits, where its sums go. */

/* A run of points of one row: row is the flattened outer index. `work` is what its points take, each 1 and 1 more for
 * every edge around it, `before` the work of all segments before this one. */
typedef struct {
    int64_t row, begin, end, before, work;
} Segment;

typedef struct {
    void *const *field;               /* first channel of each field */
    const int64_t *plane;             /* elements from one channel of a field to the next */
    const int64_t *size;              /* of each dim */
    const int64_t *pitch;             /* of each grid: elements from one row to the next */
    const Segment *const *segments;   /* of each list of segments */
    const int64_t *count;             /* of each list of segments */
    const double *param;              /* the energy's params */
    double *const *partial;           /* of each reduction: one number for each segment */
    const int32_t *const *table;      /* the columns and incidences of graphs: every index in them has been checked */
} Context;

/* Visits the segments [first, last) of its list. */
typedef void (*KernelRange)(const Context *c, const double *scalar, int64_t first, int64_t last);

typedef struct {
    KernelRange range;
    int list;             /* of segments */
    int reduction, reductions; /* first slot, number of slots */
    int maximum;          /* whether its reductions take the largest, not the sum */
    int prepares;         /* whether later kernels of the same line read what it stores */
} Kernel;

/* Before a loop over points: no point reads what another one stores, so the loop may be vectorised without asking at
 * run time whether its many arrays overlap. */
#if defined(__clang__)
/* Full vector registers: clang would take half of one where a sum in double goes along. */
#define OPTPY_PRAGMA(text) _Pragma(#text)
#define OPTPY_LANES(n) OPTPY_PRAGMA(clang loop vectorize(assume_safety) vectorize_width(n))
#define OPTPY_INDEPENDENT OPTPY_LANES(OPTPY_WIDTH)
#else
#define OPTPY_INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Where the interior of a row begins: after whole vectors, unless the row is so short that its border is most of it. */
OPTPY_FN int64_t optpy_whole_vectors(int64_t margin, int64_t length) {
    return length < 16 * OPTPY_WIDTH ? margin : (margin + OPTPY_WIDTH - 1) / OPTPY_WIDTH * OPTPY_WIDTH;
}
