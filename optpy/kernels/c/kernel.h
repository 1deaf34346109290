/* What every generated kernel sees: where its fields stand, which points it visits, where its sums go; and what those who run
 * it know of it. */

/* A run of points of one row: row is the flattened outer index. `work` is what its points take, each 1 and 1 more for
 * every edge around it, `before` the work of all segments before this one. */
typedef struct {
    int64_t row, begin, end, before, work;
} Segment;

struct Kernel;

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
    const struct Kernel *kernels;     /* of the energy's library, by their numbers */
    int64_t fields;                   /* how many there are */
} Context;

/* Visits the segments [first, last) of its list. */
typedef void (*KernelRange)(const Context *c, const double *scalar, int64_t first, int64_t last);

typedef struct Kernel {
    KernelRange range;
    int list;             /* of segments */
    int reduction, reductions; /* first slot, number of slots */
    int maximum;          /* whether its reductions take the largest, not the sum */
    int prepares;         /* whether later kernels of the same line read what it stores */
} Kernel;
