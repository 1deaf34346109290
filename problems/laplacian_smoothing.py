"""Smoothing of a noisy photograph: `python -m problems.laplacian_smoothing`.

The smallest energy of all: stay near the noisy picture, and near the neighbours. At its minimum a screened
Poisson equation holds: (w_fit^2 - w_reg^2 Laplacian) X = w_fit^2 A.

Reference: Z. DeVito et al.: Opt, ACM Transactions on Graphics 36(5), 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import optpy as op

from . import pictures
from .command import Settings, problem_command, solve
from .pictures import Picture

# ---- the energy --------------------------------------------------------------------------------------------

H, W = op.dims("H W")
i, j = op.indices(H, W)

X = op.Unknown("X", (H, W))  # the smooth picture we look for
A = op.Array("A", (H, W))  # the noisy one
w_fit, w_reg = op.params("w_fit w_reg")

energy = op.Energy(
    fit=w_fit * (X[i, j] - A[i, j]),
    reg=[w_reg * (X[i, j] - X[i + 1, j]), w_reg * (X[i, j] - X[i, j + 1])],
)

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Noisy:
    """A grey picture (H, W) and the same with noise."""

    clean: Picture
    noisy: Picture

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; the solve starts from the noisy picture."""
        return dict(X=self.noisy, A=self.noisy, w_fit=1.0, w_reg=1.5)


def default_noisy(size: int | None = None, sigma: float = 0.12, seed: int = 0) -> Noisy:
    """A photograph by Lav Varshney, CC0, that ships inside scikit-image, with Gaussian noise.

    Args:
        size: pixels along each side; None is 512.
        sigma: standard deviation of the noise; white is 1.
        seed: of the noise.
    """
    clean = pictures.resize_longest_side(pictures.shipped_picture("camera.png"), size)
    noise = np.random.default_rng(seed).normal(0.0, sigma, clean.shape)
    return Noisy(clean, np.clip(clean + noise, 0.0, 1.0))


# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="laplacian_smoothing.png", method="gn", iterations=5)
def main(settings: Settings) -> None:
    """Smooths a noisy photograph; draws it before and after."""
    noisy = default_noisy(settings.size)
    result = solve(energy, noisy.data, settings)
    pictures.save_side_by_side(settings.output, [noisy.noisy, result.x["X"]])


if __name__ == "__main__":
    main()
