/* Every generated kernel. */

/* Visits the segments [first, last) of its list. */
typedef void (*KernelRange)(const Context *c, const double *scalar, int64_t first, int64_t last);

/* Before kernels: Python finds them by their names. */
#define OPTPY_KERNEL OPTPY_EXPORT
