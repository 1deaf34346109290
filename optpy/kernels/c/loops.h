/* The loops of generated kernels: OPTPY_WIDTH is the numbers in a vector register. */

/* Before a loop over points: no point reads what another one stores, so the loop may be vectorised without asking at
 * run time whether its many arrays overlap. */
#if defined(__clang__)
/* Full vector registers: clang would take half of one where a sum in double goes along. */
#define OPTPY_PRAGMA(text) _Pragma(#text)
#define OPTPY_LANES(n) OPTPY_PRAGMA(clang loop vectorize(assume_safety) vectorize_width(n))
#define OPTPY_INDEPENDENT OPTPY_LANES(OPTPY_WIDTH)
/* One vector at a time, and the last one masked: clang would write out four steps of a border, and one for the points that
 * fill no vector, most of the time that a grid takes to compile, and one by one these take as long as the row. */
#define OPTPY_NARROW _Pragma("clang loop interleave_count(1) vectorize_predicate(enable)") OPTPY_INDEPENDENT
#else
#define OPTPY_INDEPENDENT _Pragma("GCC ivdep")
#define OPTPY_NARROW OPTPY_INDEPENDENT
#endif

/* Between the stages of a long loop body: what points at arrays is loaded again, as hundreds of pointers that stay alive
 * through all stages take a compiler more than linear time to give registers to. */
#define OPTPY_ANEW __asm__ volatile("" : : : "memory")

/* The cache line of an element, which may be outside of its array; as an address, since there is no pointer to that. */
#define OPTPY_FETCH(array, index, stored) \
    __builtin_prefetch((const void *)((uintptr_t)(array) + (uintptr_t)(index) * sizeof *(array)), stored, 3)

/* A place in a row, moved to where a full vector begins. */
OPTPY_FN int64_t optpy_vectors_up(int64_t place) { return (place + OPTPY_WIDTH - 1) / OPTPY_WIDTH * OPTPY_WIDTH; }
OPTPY_FN int64_t optpy_vectors_down(int64_t place) { return place / OPTPY_WIDTH * OPTPY_WIDTH; }
