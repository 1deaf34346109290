"""The structures of kernel.h, declared once: the arguments of every generated kernel, and its description."""

from __future__ import annotations

from optpy.kernels.codegen.structures import Structure
from optpy.kernels.toolchain.headers import native_header

# A run of points of one row: row is the flattened outer index. `work` is what its points take, each 1 and 1 more for
# every edge around it, `before` the work of all segments before this one.
SEGMENT = Structure(
    "Segment",
    """
    int64_t row, begin, end, before, work;
    int64_t later; /* the row of one of the next segments, which is fetched from memory meanwhile */
""",
)
CONTEXT = Structure(
    "Context",
    """
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
""",
)
# A kernel, as those who run it know it.
KERNEL = Structure(
    "Kernel",
    """
    KernelRange range;     /* 0 until the kernel is compiled */
    int list;              /* of segments */
    int reduction, reductions; /* the first, and how many */
    int maximum;           /* whether its reductions take the largest, not the sum */
    int prepares;          /* whether later kernels of the same group read what it stores */
""",
)


def kernel_header() -> str:
    """The C text of all of them; goes after prelude.h."""
    return "\n\n".join([SEGMENT.text, "struct Kernel;", CONTEXT.text, native_header("kernels/c/kernel.h"), KERNEL.text])
