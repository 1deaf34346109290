"""The colours of a scene without its light: `python -m problems.intrinsic_images`.

A photograph is what surfaces reflect times how they are lit. In logarithms the product is a sum, whose parts are told
apart by what they are like: reflectance is the same over whole surfaces and jumps between them, light varies smoothly.
So the differences between neighbouring pixels are small in the norm p = 0.8, which allows for a few large ones, where
they are of reflectance, and in the square norm where they are of light. Neighbours of one chromaticity are of one
surface.

Reference: A. Meka, M. Zollhoefer, C. Richardt, C. Theobalt: Live Intrinsic Video, ACM Transactions on Graphics 35(4),
2016; in the form of Z. DeVito et al.: Opt, ACM Transactions on Graphics 36(5), 2017.
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

R = op.Unknown("R", (H, W), 3)  # logarithms of the reflectance: red, green, blue
S = op.Unknown("S", (H, W))  # logarithm of the shading, by white light
Image = op.Array("Image", (H, W), 3)  # logarithms of the photograph
Chroma = op.Array("Chroma", (H, W), 3)  # its chromaticity: red, green and blue by their sum
w_fit, w_reflectance, w_shading, w_level = op.params("w_fit w_reflectance w_shading w_level")
p, steepness = op.params("p steepness")

SMALLEST = 1e-4
"""Differences of reflectance below about this are as good as none: its weight stays finite."""


def one_surface(di: int, dj: int) -> Any:
    """Near 1 where a pixel has the chromaticity of a neighbour, near 0 where it differs much."""
    difference = Chroma[i, j] - Chroma[i + di, j + dj]
    return op.exp(-steepness * op.norm(difference))


def sparse(di: int, dj: int) -> Any:
    """The weight by which the square of a difference of reflectance is its p-th power, at each iteration anew."""
    difference = R[i, j] - R[i + di, j + dj]
    return op.stop_gradient((op.dot(difference, difference) + SMALLEST**2) ** (p / 4 - 0.5))


Right, Below = op.Func("Right", (H, W)), op.Func("Below", (H, W))
Right[i, j] = one_surface(0, 1)
Below[i, j] = one_surface(1, 0)

energy = op.Energy(
    fit=w_fit * (R[i, j] + op.vector(S[i, j], S[i, j], S[i, j]) - Image[i, j]),
    reflectance=[
        w_reflectance * Right[i, j] * sparse(0, 1) * (R[i, j] - R[i, j + 1]),
        w_reflectance * Below[i, j] * sparse(1, 0) * (R[i, j] - R[i + 1, j]),
    ],
    shading=[w_shading * (S[i, j] - S[i, j + 1]), w_shading * (S[i, j] - S[i + 1, j])],
    level=w_level * S[i, j],  # a brighter light on darker surfaces looks the same
)

# ---- its data ----------------------------------------------------------------------------------------------

DARKEST = 0.02
"""Darker pixels count as this bright: the logarithm of 0 is none."""


@dataclass(frozen=True, slots=True)
class Photograph:
    """A photograph (H, W, 3) that is taken apart."""

    picture: Picture

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name; at the start all that is bright or dark is so by its light."""
        light = np.maximum(self.picture, DARKEST)
        logarithm = np.log(light)
        shading = logarithm.mean(axis=2)
        return dict(
            R=logarithm - shading[..., None],
            S=shading,
            Image=logarithm,
            Chroma=light / light.sum(axis=2, keepdims=True),
            w_fit=10.0,
            w_reflectance=3.0,
            w_shading=8.0,
            w_level=0.01,
            p=0.8,
            steepness=20.0,
        )


def default_photograph(size: int | None = None) -> Photograph:
    """A photograph by Rachel Michetti, CC0: that of the data folder, or the same inside scikit-image.

    Args:
        size: pixels along its longer side; None is 600, as it is.
    """
    found = pictures.data_file("images/coffee.png")
    picture = pictures.shipped_picture("coffee.png") if found is None else pictures.read_picture(found)
    return Photograph(pictures.resize_longest_side(picture, size))


def painted(size: int = 64) -> tuple[Photograph, Picture, Picture]:
    """A made scene of four colours in a light that falls off: its picture, its reflectance and its shading.

    Args:
        size: pixels along each side.
    """
    y, x = (np.mgrid[:size, :size] + 0.5) / size
    colours = np.array([[0.8, 0.3, 0.2], [0.3, 0.6, 0.3], [0.2, 0.3, 0.7], [0.7, 0.7, 0.6]])
    reflectance = colours[(x > 0.5).astype(int) + 2 * (y > 0.4).astype(int)]
    shading = 0.3 + 0.7 * np.exp(-2 * ((x - 0.3) ** 2 + (y - 0.2) ** 2))
    return Photograph(reflectance * shading[..., None]), reflectance, shading


def shown(logarithm: Picture) -> Picture:
    """A part of a photograph, from its logarithm, as bright as a picture can be."""
    part = np.exp(np.asarray(logarithm, np.float64))
    return np.asarray(np.clip(part / np.quantile(part, 0.99), 0, 1))


# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="intrinsic_images.png", method="gn", iterations=12)
def main(settings: Settings) -> None:
    """Takes a photograph apart, and draws it, its reflectance and its shading."""
    photograph = default_photograph(settings.size)
    result = solve(energy, photograph.data, settings)
    panels = [photograph.picture, shown(result.x["R"]), shown(result.x["S"])]
    pictures.save_side_by_side(settings.output, panels)


if __name__ == "__main__":
    main()
