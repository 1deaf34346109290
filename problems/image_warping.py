"""As-rigid-as-possible warping of a photograph by handles: `python -m problems.image_warping`.

Every pixel gets a place and an angle. Handles pull some pixels to given places; everywhere else the vector
to each neighbour shall stay what it was, up to the pixel's own rotation. Places are (x, y), x the column and
y the row, as in the files of handles.

Reference: O. Sorkine, M. Alexa: As-Rigid-As-Possible Surface Modeling, SGP 2007; Z. DeVito et al.: Opt,
ACM Transactions on Graphics 36(5), 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op

from . import pictures
from .command import Settings, problem_command, solve
from .forward_warp import forward_warp
from .pictures import Picture

# ---- the energy --------------------------------------------------------------------------------------------

H, W = op.dims("H W")
i, j = op.indices(H, W)

Offset = op.Unknown("Offset", (H, W), 2)  # where the pixel goes
Angle = op.Unknown("Angle", (H, W))  # how its surroundings turn
UrShape = op.Array("UrShape", (H, W), 2)  # where it was
Constraints = op.Array("Constraints", (H, W), 2)  # where a handle pulls it; negative: no handle
Mask = op.Array("Mask", (H, W), dtype=np.uint8)  # 0: the pixel takes part
w_fit, w_reg = op.params("w_fit w_reg")

active = Mask[i, j] == 0
pinned = (Constraints[i, j] >= 0).all()


def arap(di: int, dj: int) -> Any:
    """How far the vector to one neighbour is from being only rotated."""
    n = (i + di, j + dj)
    r = (Offset[i, j] - Offset[n]) - op.rotate2d(Angle[i, j], UrShape[i, j] - UrShape[n])
    return op.where(op.in_bounds(*n) & active & (Mask[n] == 0), w_reg * r, 0)


energy = op.Energy(
    fit=op.where(pinned & active, w_fit * (Offset[i, j] - Constraints[i, j]), 0),
    reg=[arap(0, 1), arap(0, -1), arap(1, 0), arap(-1, 0)],
    fixed={Offset: ~active, Angle: ~active},
)

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Handle:
    """A disc of pixels that moves as one piece; with radius 0 it is a single pixel."""

    source: tuple[float, float]
    """Centre (x, y) before."""
    target: tuple[float, float]
    """Centre (x, y) after."""
    radius: float = 0.0
    turn: float = 0.0
    """Degrees, clockwise on the screen."""

    def scaled(self, scale: float) -> Handle:
        """The same handle on the picture resampled by `scale`; pixel centres lie at whole numbers."""
        x0, y0, x1, y1 = (scale * (v + 0.5) - 0.5 for v in (*self.source, *self.target))
        return Handle((x0, y0), (x1, y1), scale * self.radius, self.turn)


@dataclass(frozen=True, slots=True)
class Warp:
    """A picture with the data of its warping."""

    picture: Picture
    """(H, W, 3)."""
    data: dict[str, Any]
    """What the energy needs, by name."""

    def drawn_at(self, offset: NDArray[np.floating]) -> Picture:
        """The picture with every active pixel at its place in `offset`, (H, W, 2)."""
        return forward_warp(self.picture, offset, self.data["Mask"] == 0)


ASTRONAUT_HANDLES = (
    Handle((226, 100), (190, 122), radius=50, turn=-38),  # the head tilts
    Handle((425, 235), (372, 222), radius=40, turn=24),  # the shuttle swings
    Handle((390, 450), (395, 410), radius=40, turn=40),  # the helmet rolls
    Handle((165, 378), (152, 352), radius=30, turn=45),  # and the badge follows
)
"""In pixels of the 512 x 512 photograph."""


def default_warp(size: int | None = None) -> Warp:
    """The cat where the data folder is there, the astronaut elsewhere.

    Args:
        size: pixels along the longer side; None takes the picture as it is.
    """
    if pictures.data_file("image_warping/cat512.png") is not None:
        return cat512(size)
    return astronaut(size)


def cat512(size: int | None = None, pin_border: bool = True) -> Warp:
    """The cat that Opt was presented with: 9 handles, all moved at once, starting from the identity.

    Args:
        size: pixels along each side; None is 512.
        pin_border: adds every pixel of the picture's border as a handle that stays, as Opt's example does. On
            this picture it changes nothing: no pixel of the border is active.

    Raises:
        FileNotFoundError: the data folder is not there.
    """
    picture_file, mask_file, handle_file = (
        pictures.data_file(f"image_warping/cat512{end}") for end in (".png", "_mask.png", ".constraints")
    )
    if picture_file is None or mask_file is None or handle_file is None:
        raise FileNotFoundError("image_warping/cat512 needs the data folder: see OPTPY_DATA in docs/gallery/index.md")
    whole = pictures.flatten_on_white(pictures.read_picture(picture_file))
    picture = pictures.resize_longest_side(whole, size)
    red = np.rint(255 * pictures.read_picture(mask_file)[..., 0]).astype(np.uint8)
    mask = pictures.resize_mask(red, (picture.shape[0], picture.shape[1]))
    scale = picture.shape[0] / whole.shape[0]
    return _warp(picture, mask, [h.scaled(scale) for h in read_handles(handle_file)], pin_border)


def astronaut(size: int | None = None) -> Warp:
    """A photograph in the public domain (NASA) that ships inside scikit-image; its border stays.

    Args:
        size: pixels along each side; None is 512.
    """
    whole = pictures.shipped_picture("astronaut.png")
    picture = pictures.resize_longest_side(whole, size)
    mask = np.zeros(picture.shape[:2], np.uint8)
    scale = picture.shape[0] / whole.shape[0]
    return _warp(picture, mask, [h.scaled(scale) for h in ASTRONAUT_HANDLES], pin_border=True)


def read_handles(path: Path) -> list[Handle]:
    """Reads a .constraints file: the number of rows, then `x0 y0 x1 y1` in each, (x0, y0) going to (x1, y1).

    Raises:
        ValueError: the number of rows is not the one announced, or a row has not four numbers.
    """
    count, *numbers = path.read_text().split()
    if len(numbers) != 4 * int(count):
        raise ValueError(f"{path}: {count} rows of four announced, {len(numbers)} numbers found")
    rows = np.array(numbers, dtype=np.float64).reshape(-1, 4)
    return [Handle((x0, y0), (x1, y1)) for x0, y0, x1, y1 in rows.tolist()]


def _warp(picture: Picture, mask: NDArray[np.uint8], handles: Sequence[Handle], pin_border: bool) -> Warp:
    identity = pixel_places(mask.shape[0], mask.shape[1])
    constraints = np.full_like(identity, -1.0)
    if pin_border:
        border = np.ones(mask.shape, dtype=bool)
        border[1:-1, 1:-1] = False
        constraints[border] = identity[border]
    for handle in handles:
        constrain(constraints, identity, handle)
    data = dict(
        Offset=identity,
        Angle=np.zeros(mask.shape, np.float32),
        UrShape=identity.copy(),
        Constraints=constraints,
        Mask=mask,
        w_fit=10.0,
        w_reg=0.1,
    )
    return Warp(picture, data)


def pixel_places(height: int, width: int) -> NDArray[np.float32]:
    """(H, W, 2): the place (x, y) of every pixel."""
    rows, columns = np.mgrid[:height, :width]
    return np.stack([columns, rows], axis=-1).astype(np.float32)


def constrain(constraints: NDArray[np.float32], identity: NDArray[np.float32], handle: Handle) -> None:
    """Writes the places that a handle wants for its pixels."""
    x0, y0 = (round(v) for v in handle.source)
    reach = max(int(handle.radius), 0) + 1
    box = tuple(slice(max(c - reach, 0), max(c + reach + 1, 0)) for c in (y0, x0))  # the rest need not be looked at
    away = identity[box] - np.array([x0, y0], np.float32)
    disc = np.hypot(away[..., 0], away[..., 1]) <= max(handle.radius, 0.25)
    angle = np.deg2rad(handle.turn)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    constraints[box][disc] = away[disc] @ rotation.T + np.array(handle.target)


# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="image_warping.png", method="lm", iterations=200)
def main(settings: Settings) -> None:
    """Warps a photograph by handles, as rigidly as possible, and draws it before and after."""
    warp = default_warp(settings.size)
    result = solve(energy, warp.data, settings)
    after = warp.drawn_at(result.x["Offset"])
    pictures.save_side_by_side(settings.output, [warp.picture, after])


if __name__ == "__main__":
    main()
