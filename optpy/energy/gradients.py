"""``check_gradients``: an energy's symbolic derivatives against differences of its residuals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optpy.energy.check.gradient_check import GradientReport, gradient_report
from optpy.energy.energy import Energy


def check_gradients(
    energy: Energy, data: Mapping[str, Any], tolerance: float = 1e-6, *, raise_exception: bool = False
) -> GradientReport:
    """Compare ``energy.jacobian(data)`` with differences of the residuals, in float64; along the retraction where
    unknowns live on manifolds.

    Central differences, extrapolated to step 0; columns that share no row are changed together. What
    ``op.stop_gradient`` holds constant stays constant in the differences, too, and so do the weights of ``op.robust``
    (the residuals are those of ``energy.residuals(data, linearised=True)``).

    The first step is 1/256 of max(1, abs(x)). Shorter ones follow where the derivatives do not agree with it, or where
    differences over a step as short as rounding allows tell of something else, such as an edge that is far shorter
    than its coordinates are large. Where the differences are rounded by more than the error that they show, the report
    says that the derivative is *not decidable at this point*; that is no agreement: choose data nearer to the origin,
    or a larger tolerance. It says so, too, where the symbolic derivative is another over steps as short as rounding
    allows, so that no differences show it: ``1e8 + 1e-9 * tanh(1e5 * x)`` near x = 0.

    At a kink, central differences give the mean of the slopes on its two sides, and the energy's derivative is by
    convention: ``abs`` at 0 has 0, which is that mean, and agrees; ``maximum``, ``minimum`` and ``where`` have that
    of the arm taken, and disagree. At a jump (``floor``, a comparison that flips) differences mean nothing, and the
    report says that they disagree although the derivative may be right: choose data away from those points.

    Args:
        energy: whose derivatives.
        data: the point at which to compare, as for ``op.solve``.
        tolerance: the largest error to accept, relative to max(1, |entry|).
        raise_exception: whether to raise where not every derivative agrees, as a test would.

    Raises:
        DataError: the data does not fit the energy.
        AssertionError: the report, where it has not passed and `raise_exception` is set.

    Reference: C. Ridders, "Accurate computation of F'(x) and F'(x) F''(x)", Advances in Engineering Software, 1982.
    """
    report = gradient_report(energy.problem, data, tolerance)
    if raise_exception and not report:
        raise AssertionError(str(report))
    return report
