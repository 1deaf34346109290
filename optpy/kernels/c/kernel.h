/* Every generated kernel. */

/* Visits the segments [first, last) of its list. */
typedef void (*KernelRange)(const Context *c, const double *scalar, int64_t first, int64_t last);

/* Before kernels: other parts of their library see them, and nobody else. */
#define OPTPY_KERNEL __attribute__((visibility("hidden")))
