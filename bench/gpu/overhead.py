"""What an iteration of conjugate gradients takes beside its arithmetic: launches, barriers, sums over blocks, the host.

The work of an iteration is that of its three stages (p = z + beta p; Ap and p.Ap; r -= alpha Ap and r.z). Each is run
over and over within one kernel, by the very device functions of the solver, without launches and barriers between; the
difference of a long loop and a short one is the stage's work. What an iteration takes more than the three is overhead.
It contains the sums over blocks, too, so that it is an upper bound of what launches and the host cost.
"""

from __future__ import annotations

from copy import copy
from dataclasses import asdict, dataclass
from typing import Any, final

from bench.gpu.bench import Bench
from bench.gpu.kernels import Budget, KernelTime
from optpy.ir import Group, Task
from optpy.kernels.codegen.cuda.program import CudaProgram
from optpy.kernels.codegen.pcg_structures import PcgLimits
from optpy.kernels.runtime.cuda.device import LoadedKernel
from optpy.linear.jacobi.jacobi import BLOCKS, DIAGONAL
from optpy.linear.pcg.variant import Variant

_SHORT, _LONG = 20, 200

_LOOPS = r"""
#define OPTPY_WORK(name, stage)                                                                                 \
    extern "C" __global__ void __launch_bounds__(OPTPY_THREADS) name(const __grid_constant__ Context context) { \
        const Context *c = &context;                                                                            \
        double scalar[OPTPY_SCALARS], sum[1] = {0};                                                             \
        pcg_scalars(c, scalar, c->limits.eta, c->limits.r_tolerance); /* alpha and beta, both 0 */              \
        for (long long n = 0; n < c->limits.max_iterations; ++n) {                                              \
            stage;                                                                                              \
        }                                                                                                       \
        if (sum[0] == -1.0) c->total[0] = sum[0]; /* never: but the compiler must not know that */              \
    }
OPTPY_WORK(work_direction, phase_direction(c, scalar, sum, false))
OPTPY_WORK(work_update, phase_update(c, scalar, sum, false))
"""


@final
@dataclass(frozen=True, slots=True)
class Overhead:
    """One iteration at one size, in seconds."""

    case: str
    size: int
    dtype: str
    cooperative: bool
    """Whether all iterations run in one kernel."""
    iteration: float
    direction: float
    apply: float
    update: float
    start: float
    """What a linear solve takes beside its iterations."""

    @property
    def work(self) -> float:
        """Of the three stages."""
        return self.direction + self.apply + self.update

    @property
    def overhead(self) -> float:
        """The rest of an iteration."""
        return self.iteration - self.work


def measure(bench: Bench, row: KernelTime, budget: Budget) -> Overhead:
    """Beside an iteration that has been measured.

    Args:
        bench: where it was; a linear solve has run on it.
        row: of the routine "pcg".
    """
    variant = BLOCKS if bench.preconditioner == "block_jacobi" else DIAGONAL
    module = bench.device.load(source(bench.executor.program, variant, bench.damped, bench.executor.index))
    points = max(bench.executor.points(group) for group in (variant.start, Group.PRODUCT))
    direction, apply, update = (
        _work(bench, module.kernel(f"work_{stage}"), points, budget) for stage in ("direction", "apply", "update")
    )
    _, _, counts = bench.linear_solve(1)
    return Overhead(
        case=bench.case.name,
        size=row.size,
        dtype=bench.dtype,
        cooperative=counts.cooperative > 0,
        iteration=row.seconds,
        direction=direction,
        apply=apply,
        update=update,
        start=row.start_seconds,
    )


def source(program: CudaProgram, variant: Variant, damped: bool, index: str) -> str:
    """The sources of conjugate gradients, with the loops behind them; the arguments are those of `Variant.source`."""
    products = len(program.phases[Group.of(Task.PRODUCT, damped=damped)])
    applies = "".join(f"phase_apply_{n}(c, scalar, sum, false); " for n in range(products))
    return f"{variant.source(program, damped, index)}{_LOOPS}OPTPY_WORK(work_apply, {applies})\n"


def _work(bench: Bench, kernel: LoadedKernel, points: int, budget: Budget) -> float:
    """Seconds of one pass over all points, without a launch."""
    executor = bench.executor
    context = executor.context
    kept = copy(context.limits)
    executor.locate()

    def run(passes: int) -> float:
        """Seconds of one launch."""
        context.limits = PcgLimits(max_iterations=passes)
        executor.wait()
        launch = executor.kept((kernel, points), lambda: (kernel, points))
        return bench.timed(lambda: executor.launch(launch))

    run(1)
    found = [(run(_SHORT), run(_LONG)) for _ in range(budget.runs)]
    context.limits = kept
    short, long = (min(times) for times in zip(*found, strict=True))
    return float(max(long - short, 0.0)) / (_LONG - _SHORT)


def as_record(row: Overhead) -> dict[str, Any]:
    """For JSON."""
    return {**asdict(row), "work": row.work, "overhead": row.overhead}
