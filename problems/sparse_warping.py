"""As-rigid-as-possible warping of a photograph by points between its pixels: `python -m problems.sparse_warping`.

The rigidity is that of `problems.image_warping`, on the grid of pixels. The handles are a graph: each takes a point of
the picture, at real coordinates, to another. Where the point goes is interpolated bilinearly between the places of the
four pixels around it. Places are (x, y), x the column and y the row.

Reference: O. Sorkine, M. Alexa: As-Rigid-As-Possible Surface Modeling, SGP 2007.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op

from . import image_warping, pictures
from .command import Settings, problem_command, solve
from .image_warping import ASTRONAUT_HANDLES, Angle, H, Handle, Offset, W, Warp, active, arap, w_fit

# ---- the energy --------------------------------------------------------------------------------------------

K = op.dims("K")
k = op.indices(K)

match = op.Graph("match", K, ((H, W), (H, W), (H, W), (H, W)))  # the pixels around each point
Share = op.Array("Share", (K,), 4)  # of each of them in the point; together 1
Target = op.Array("Target", (K,), 2)  # where the point shall go

place = sum(Share[k][n] * Offset[pixel] for n, pixel in enumerate(match[k]))

energy = op.Energy(
    fit=w_fit * (place - Target[k]),
    reg=[arap(0, 1), arap(0, -1), arap(1, 0), arap(-1, 0)],
    fixed={Offset: ~active, Angle: ~active},
)

# ---- its data ----------------------------------------------------------------------------------------------

POINTS = 40
"""On a handle that is a disc."""
Places = NDArray[np.float64]
"""(K, 2): x, y."""


def default_warp(size: int | None = None) -> Warp:
    """The picture, the mask and the handles of `image_warping.default_warp`, as points.

    Args:
        size: pixels along the longer side; None takes the picture as it is.
    """
    file = pictures.data_file("image_warping/cat512.constraints")
    handles = ASTRONAUT_HANDLES if file is None else tuple(image_warping.read_handles(file))
    warp = image_warping.default_warp(size)
    scale = pictures.longest_side(warp.picture) / 512  # of either picture
    return with_matches(warp, *points([handle.scaled(scale) for handle in handles]))


def points(handles: Sequence[Handle]) -> tuple[Places, Places]:
    """Where points of the handles are, and where they shall go; those of a disc are spread evenly, in a spiral."""
    before: list[Places] = []
    after: list[Places] = []
    for handle in handles:
        count = POINTS if handle.radius else 1
        number = np.arange(count)
        radius = handle.radius * np.sqrt((number + 0.5) / count)
        golden = number * np.pi * (3 - 5**0.5)
        for angle, centre, found in ((0.0, handle.source, before), (handle.turn, handle.target, after)):
            turned = golden + np.deg2rad(angle)
            found.append(np.array(centre) + np.stack([radius * np.cos(turned), radius * np.sin(turned)], axis=1))
    return np.concatenate(before), np.concatenate(after)


def with_matches(warp: Warp, before: Places, after: Places) -> Warp:
    """The warp with points as handles; those pixels of the picture's border that take part stay where they are."""
    identity = warp.data["UrShape"].astype(np.float64)
    border = warp.data["Mask"] == 0
    border[1:-1, 1:-1] = False
    held = identity[border]
    data = {name: value for name, value in warp.data.items() if name != "Constraints"}
    data |= matches(np.concatenate([held, before]), np.concatenate([held, after]), warp.data["Mask"] == 0)
    return replace(warp, data=data)


def matches(before: Places, after: Places, taking_part: NDArray[np.bool_]) -> dict[str, Any]:
    """The graph of the handles and the arrays over it, by name in the energy.

    Pixels that take no part have no share: the others around the point have theirs. Points outside the picture, and
    those around which no pixel takes part, are left out.

    Args:
        taking_part: (H, W).
    """
    size = np.array(taking_part.shape)
    inside = ((before >= 0) & (before <= size[::-1] - 1)).all(axis=1)
    position, target = before[inside, ::-1], after[inside]  # (row, column)
    low = np.floor(position).astype(np.int64)
    fraction = position - low
    steps = ((0, 0), (0, 1), (1, 0), (1, 1))
    corners = [np.minimum(low + step, size - 1) for step in steps]
    shares = [
        np.where(step, fraction, 1 - fraction).prod(axis=1) * taking_part[tuple(corner.T)]
        for step, corner in zip(steps, corners, strict=True)
    ]
    share = np.stack(shares, axis=1)
    total = share.sum(axis=1)
    kept = total > 0
    return dict(
        match=np.concatenate(corners, axis=1)[kept],
        Share=share[kept] / total[kept, None],
        Target=target[kept],
    )


# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="sparse_warping.png", method="lm", iterations=200)
def main(settings: Settings) -> None:
    """Warps a photograph by points between its pixels, as rigidly as possible, and draws it before and after."""
    warp = default_warp(settings.size)
    result = solve(energy, warp.data, settings)
    pictures.save_side_by_side(settings.output, [warp.picture, warp.drawn_at(result.x["Offset"])])


if __name__ == "__main__":
    main()
