/* The arguments of every generated kernel: its fields, the points it visits, the targets of its sums; and what those who run
 * it know of it. */

/* Visits the segments [first, last) of its list. */
typedef void (*KernelRange)(const Context *c, const double *scalar, int64_t first, int64_t last);

/* Before kernels: other parts of their library see them, and nobody else. */
#define OPTPY_KERNEL __attribute__((visibility("hidden")))

typedef struct Kernel {
    KernelRange range;
    int list;             /* of segments */
    int reduction, reductions; /* the first, and how many */
    int maximum;          /* whether its reductions take the largest, not the sum */
    int prepares;         /* whether later kernels of the same group read what it stores */
} Kernel;
