"""Nonlinear least squares over a small problem protocol, with preconditioned conjugate gradients inside.

Conventions, used everywhere below:

    cost(x)  = 1/2 ||F(x)||^2          F: the stacked residuals, J: their Jacobian
    g        = J^T F                   the gradient of the cost
    (J^T J + D) delta = -g             one linear solve; D = 0 for Gauss-Newton
    x       <- x + delta

How to read it, in order: `protocol` (what a problem must be able to do), `pcg` (the linear solver),
`gauss_newton` and `trust_region` with `levenberg_marquardt` (which step, and is it any good),
`termination` (when to stop), `minimizer` (the loop), `summary`, `result` and `report` (what comes out).
`reference` is the protocol in plain NumPy: compiled problems are held to it.

References:
    Nocedal and Wright, Numerical Optimization, 2nd ed., 2006 [N&W].
    Agarwal, Mierle et al., Ceres Solver, http://ceres-solver.org [Ceres].
    DeVito et al., Opt: A Domain Specific Language for Non-linear Least Squares Optimization in Graphics
    and Imaging, ACM Trans. Graph. 36(5), 2017 [Opt].
"""

from optpy.solver.iteration import IntermediateResult, IterationRecord
from optpy.solver.minimizer import Minimizer
from optpy.solver.options import SolveOptions
from optpy.solver.protocol import Cost, Damping, LinearLimits, LinearStatus, LinearSummary, NonlinearProblem, Step
from optpy.solver.result import SolveResult, Status, Timing
from optpy.solver.summary import Summary

__all__ = [
    "Cost",
    "Damping",
    "IntermediateResult",
    "IterationRecord",
    "LinearLimits",
    "LinearStatus",
    "LinearSummary",
    "Minimizer",
    "NonlinearProblem",
    "SolveOptions",
    "SolveResult",
    "Status",
    "Step",
    "Summary",
    "Timing",
]
