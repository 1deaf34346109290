"""The trust region of Levenberg-Marquardt: how far the quadratic model is believed."""

from __future__ import annotations

from typing import NamedTuple, final


@final
class TrustRegion(NamedTuple):
    """Its radius, and by how much the next rejection shrinks it.

    Reference: Nielsen, Damping parameter in Marquardt's method, IMM-REP-1999-05, 1999; Ceres.
    """

    radius: float
    max_radius: float
    decrease_factor: float = 2.0

    def accepted(self, relative_decrease: float) -> TrustRegion:
        """After a step with rho = cost change / model cost change:

        radius <- min(max_radius, radius / max(1/3, 1 - (2 rho - 1)^3)).
        """
        rho = min(relative_decrease, 1.0)  # beyond 1 the factor is 1/3 anyway, and the cube could overflow
        radius = self.radius / max(1 / 3, 1 - (2 * rho - 1) ** 3)
        return TrustRegion(min(self.max_radius, radius), self.max_radius)

    def rejected(self) -> TrustRegion:
        """radius <- radius / 2, then / 4, / 8, ... while rejections follow one another."""
        return TrustRegion(self.radius / self.decrease_factor, self.max_radius, 2 * self.decrease_factor)
