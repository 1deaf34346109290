"""Sharpens a photograph whose blur differs from place to place: `python -m problems.deconvolution`.

Four kernels are given, those at the corners of the picture, as of a camera that has turned while its shutter was open;
that of a pixel is blended from them. The picture is sought that, so blurred, is the photograph, and that is smooth but
for its edges. The sum over the window of a kernel is `op.sum`.

Reference: M. Hirsch, S. Sra, B. Schoelkopf, S. Harmeling: Efficient Filter Flow for Space-Variant Multiframe Blind
Deconvolution, CVPR 2010, equation 4 (the blended kernels).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve

import optpy as op

from . import pictures
from .command import Settings, problem_command, solve
from .pictures import Picture

Floats = NDArray[np.float64]

HALF = 8
"""The kernels are 17 x 17 pixels: so many on each side of their middle."""

# ---- the energy --------------------------------------------------------------------------------------------

H, W, K, L = op.dims("H W K L")
i, j = op.indices(H, W)
k, m = op.indices(K, L)

X = op.Unknown("X", (H, W))  # the sharp picture we look for; starts as the blurred one
Blurred = op.Array("Blurred", (H, W))
Kernel = op.Array("Kernel", (K, L), 4)  # of each corner
Share = op.Array("Share", (H, W), 4)  # of each corner's kernel at a pixel
w_fit, w_reg, edge = op.params("w_fit w_reg edge")

inside = op.in_bounds(i - HALF, j - HALF, of=X) & op.in_bounds(i + HALF, j + HALF, of=X)  # the whole window
blurred = op.sum(X[i + k - HALF, j + m - HALF] * op.dot(Kernel[k, m], Share[i, j]), over=(k, m))
slope = op.vector(X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1])

energy = op.Energy(
    fit=op.where(inside, w_fit * (blurred - Blurred[i, j]), 0),
    reg=op.robust(w_reg * slope, "soft_l1", scale=edge),
)

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Photograph:
    """A sharp grey picture (H, W), the same blurred and with noise, and the kernels, (17, 17, 4)."""

    sharp: Picture
    blurred: Picture
    kernels: Floats

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name."""
        return dict(
            X=self.blurred,
            Blurred=self.blurred,
            Kernel=self.kernels,
            Share=corner_shares(self.sharp.shape[:2]),
            w_fit=1.0,
            w_reg=0.2,
            edge=0.002,
        )

    def decibels(self, picture: Any) -> float:
        """The peak signal-to-noise ratio of a picture, where whole windows lie in it."""
        within = (slice(HALF, -HALF),) * 2
        return float(-10 * np.log10(np.mean((np.asarray(picture) - self.sharp)[within] ** 2)))


def photograph(sharp: Picture, noise: float = 0.005, seed: int = 0) -> Photograph:
    """A picture blurred as by a turn of the camera, with noise of some standard deviation; white is 1."""
    kernels = np.stack([streak(angle, length) for angle, length in ((20, 11), (75, 8), (-50, 9), (5, 14))], axis=-1)
    blurred = blur(sharp, kernels) + np.random.default_rng(seed).normal(0, noise, sharp.shape)
    return Photograph(sharp, blurred, kernels)


def streak(degrees: float, length: float) -> Floats:
    """The kernel of a straight motion, a little out of focus: (17, 17), with the sum 1."""
    kernel = np.zeros((2 * HALF + 1, 2 * HALF + 1))
    along = np.linspace(-length / 2, length / 2, 200)
    direction = np.deg2rad(degrees)
    rows, columns = (np.rint(HALF + f(direction) * along).astype(int) for f in (np.sin, np.cos))
    np.add.at(kernel, (rows, columns), 1.0)
    kernel = gaussian_filter(kernel, 0.6)
    return np.asarray(kernel / kernel.sum())


def corner_shares(shape: tuple[int, int]) -> Floats:
    """How much of each corner's kernel a pixel takes, linear along rows and columns: (H, W, 4), sums 1."""
    y, x = (np.linspace(0, 1, n) for n in shape)
    shares = [np.outer(a, b) for a in (1 - y, y) for b in (1 - x, x)]
    return np.stack(shares, axis=-1)


def blur(sharp: Picture, kernels: Floats) -> Picture:
    """A picture under the blended kernels; beyond its border it is its mirror image."""
    padded = np.pad(sharp, HALF, mode="symmetric")
    shares = corner_shares(sharp.shape[:2])
    # The energy sums X[i + k] * Kernel[k]: a correlation.
    return np.asarray(
        sum(shares[..., c] * fftconvolve(padded, kernels[::-1, ::-1, c], mode="valid") for c in range(kernels.shape[2]))
    )


def default_photograph(size: int | None = None) -> Photograph:
    """A photograph by Lav Varshney, CC0, that ships inside scikit-image.

    Args:
        size: pixels along each side; None is 512.
    """
    return photograph(pictures.resize_longest_side(pictures.shipped_picture("camera.png"), size))


OPTIONS: dict[str, Any] = dict(linear_iterations=60, function_tolerance=1e-3)
"""Of the solve: what the eye sees is there long before the last digits."""

# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="deconvolution.png", method="gn", iterations=20)
def main(settings: Settings) -> None:
    """Sharpens a photograph whose blur differs from place to place; draws it before and after."""
    task = default_photograph(settings.size)
    result = solve(energy, task.data, settings, **OPTIONS)
    pictures.save_side_by_side(settings.output, [task.blurred, result.x["X"]])


if __name__ == "__main__":
    main()
