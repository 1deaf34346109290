"""Seamless cloning of one photograph into another: `python -m problems.poisson_image_editing`.

Inside the mask the differences between neighbours shall be those of the source, while the rest of the base
stays and sets the values at the seam. All channels are solved at once.

Reference: P. Perez, M. Gangnet, A. Blake: Poisson Image Editing, SIGGRAPH 2003, equation 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op

from . import pictures
from .command import Settings, problem_command, solve
from .pictures import Picture

# ---- the energy --------------------------------------------------------------------------------------------

H, W = op.dims("H W")
i, j = op.indices(H, W)

X = op.Unknown("X", (H, W), 3)  # the picture we look for; starts as the base
Source = op.Array("Source", (H, W), 3)  # its differences are cloned
Mask = op.Array("Mask", (H, W), dtype=np.uint8)  # 0: solved for; other: kept from the base

unknown = Mask[i, j] == 0


def difference(di: int, dj: int) -> Any:
    """The change towards one neighbour less the source's, where at least one of the two is solved for."""
    n = (i + di, j + dj)
    r = (X[n] - X[i, j]) - (Source[n] - Source[i, j])
    return op.where(op.in_bounds(*n) & (unknown | (Mask[n] == 0)), r, 0)


energy = op.Energy(gradient=[difference(0, 1), difference(1, 0)], fixed={X: ~unknown})

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clone:
    """Two pictures of one shape, (H, W, 3), and a mask (H, W): 0 where the differences are cloned."""

    base: Picture
    source: Picture
    mask: NDArray[np.uint8]

    @property
    def data(self) -> dict[str, Any]:
        """What the energy needs, by name."""
        return dict(X=self.base, Source=self.source, Mask=self.mask)

    @property
    def pasted(self) -> Picture:
        """The source simply laid over the base, with its seam."""
        return np.where(self.mask[..., None] == 0, self.source, self.base)


def default_clone(size: int | None = None) -> Clone:
    """The two portraits where the data folder is there, the cat in the coffee elsewhere.

    Args:
        size: pixels along the longer side; None takes the pictures as they are.
    """
    if pictures.data_file("poisson_image_editing/poisson0.png") is not None:
        return portraits(size)
    return latte_art(size)


def portraits(size: int | None = None) -> Clone:
    """One woman's face in another's portrait: the pair that Opt was presented with, 320 x 448 pixels.

    Raises:
        FileNotFoundError: the data folder is not there.
    """
    base_file, source_file, mask_file = (
        pictures.data_file(f"poisson_image_editing/{name}.png") for name in ("poisson0", "poisson1", "poisson_mask")
    )
    if base_file is None or source_file is None or mask_file is None:
        raise FileNotFoundError("poisson_image_editing needs the data folder: see OPTPY_DATA in docs/gallery/index.md")
    base, source = (
        pictures.resize_longest_side(pictures.read_picture(file), size) for file in (base_file, source_file)
    )
    red = np.rint(255 * pictures.read_picture(mask_file)[..., 0]).astype(np.uint8)
    return Clone(base, source, pictures.resize_mask(red, (base.shape[0], base.shape[1])))


def latte_art(size: int | None = None) -> Clone:
    """Chelsea the cat in a cup of coffee.

    The photographs, by Stefan van der Walt and Rachel Michetti, are CC0 and ship inside scikit-image.

    Args:
        size: pixels along the longer side; None is 540.
    """
    cup = pictures.shipped_picture("coffee.png")[10:250, 150:420]
    base = pictures.resize_longest_side(cup, 540 if size is None else size)
    height, width = base.shape[:2]
    face = pictures.shipped_picture("chelsea.png")[20:290, 40:400]
    rows, columns = np.mgrid[:height, :width]
    centre_y, centre_x, radius_y, radius_x = 0.565 * height, 0.515 * width, 0.165 * height, 0.25 * width
    inside = ((rows - centre_y) / radius_y) ** 2 + ((columns - centre_x) / radius_x) ** 2 < 1
    top, left = int(centre_y - radius_y), int(centre_x - radius_x)
    bottom = min(int(centre_y + radius_y) + 2, height)
    right = min(int(centre_x + radius_x) + 2, width)
    source = np.zeros_like(base)
    source[top:bottom, left:right] = pictures.resize(face, (bottom - top, right - left))
    return Clone(base, source, np.where(inside, 0, 255).astype(np.uint8))


# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="poisson_image_editing.png", method="gn", iterations=5)
def main(settings: Settings) -> None:
    """Clones one photograph into another without a seam; draws it pasted, and solved."""
    clone = default_clone(settings.size)
    result = solve(energy, clone.data, settings)
    pictures.save_side_by_side(settings.output, [clone.base, clone.pasted, result.x["X"]])


if __name__ == "__main__":
    main()
