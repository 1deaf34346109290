/* The loops of generated kernels: OPTPY_WIDTH is the numbers in a vector register. */

/* Before a loop over points: no point reads what another one stores, so the loop may be vectorised without asking at
 * run time whether its many arrays overlap. */
#if defined(__clang__)
/* Full vector registers: clang would take half of one where a sum in double goes along. */
#define OPTPY_PRAGMA(text) _Pragma(#text)
#define OPTPY_LANES(n) OPTPY_PRAGMA(clang loop vectorize(assume_safety) vectorize_width(n))
#define OPTPY_INDEPENDENT OPTPY_LANES(OPTPY_WIDTH)
/* One vector at a time: clang would write out four steps of a border, half of the time that a grid takes to compile. */
#define OPTPY_NARROW _Pragma("clang loop interleave_count(1)") OPTPY_INDEPENDENT
#else
#define OPTPY_INDEPENDENT _Pragma("GCC ivdep")
#define OPTPY_NARROW OPTPY_INDEPENDENT
#endif

/* Between the stages of a long loop body: what points at arrays is loaded again, as hundreds of pointers that stay alive
 * through all stages take a compiler more than linear time to give registers to. */
#define OPTPY_ANEW __asm__ volatile("" : : : "memory")

/* The start of the interior of a row: after whole vectors, unless the row is so short that its border is most of it. */
OPTPY_FN int64_t optpy_whole_vectors(int64_t margin, int64_t length) {
    return length < 16 * OPTPY_WIDTH ? margin : (margin + OPTPY_WIDTH - 1) / OPTPY_WIDTH * OPTPY_WIDTH;
}
