"""A depth scan refined by a photograph whose light is not known: `python -m problems.shape_and_shading`.

As problems/shape_from_shading.py, whose energy this is, but that the nine coefficients of the light are unknown, too:
one vector that all pixels share. Shape and light are found together. What brightness is in all is explained as well as
its changes from pixel to pixel: otherwise nothing would say how much light comes from everywhere.

Reference: M. Mara, F. Heide, M. Zollhoefer, M. Niessner, P. Hanrahan: Thallo - Scheduling for High-Performance
Large-Scale Non-Linear Least-Squares Solvers, ACM Transactions on Graphics 40(5), 2021 (an unknown shared by a grid).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import optpy as op

from . import pictures
from . import shape_from_shading as known_light
from .command import Settings, problem_command, solve
from .pictures import Picture
from .shape_from_shading import (
    H,
    Scan,
    W,
    across,
    contrast,
    curvature,
    down,
    i,
    j,
    reflected,
    surface_goes_on,
    unexplained,
)

# ---- the energy --------------------------------------------------------------------------------------------

L = op.Unknown("L", (), 9)  # the light: its first nine spherical harmonics
w_light = op.params("w_light")

B, whole = op.Func("B", (H, W)), op.Func("whole", (H, W))
B[i, j] = unexplained(0, 0, [L[()][n] for n in range(9)])
whole[i, j] = surface_goes_on

energy = op.Energy(
    fit=known_light.fit,
    shade=[contrast(B[i, j], B[i, j + 1]) * across[i, j], contrast(B[i, j], B[i + 1, j]) * down[i, j]],
    brightness=w_light * B[i, j],
    smooth=curvature(whole[i, j]),
    fixed={known_light.X: ~(known_light.D[i, j] > 0)},
)

# ---- its data ----------------------------------------------------------------------------------------------


def with_unknown_light(scan: Scan) -> dict[str, Any]:
    """What the energy needs, by name, of a scan; the solve starts from the light that explains the scan best."""
    data = {name: value for name, value in scan.data.items() if not name.startswith("light")}
    return data | dict(L=light_of(scan), w_light=0.1)


def light_of(scan: Scan) -> NDArray[np.float32]:
    """(9,): the light in which a scan, as it is, looks most like its photograph."""
    depth, brightness = (scan.data[name].astype(np.float64) for name in ("D", "Im"))
    known = (depth[1:, 1:] > 0) & (depth[1:, :-1] > 0) & (depth[:-1, 1:] > 0)
    normal = known_light.normals(scan.data, depth)[:, known]
    n_x, n_y, n_z = normal / np.maximum(np.sqrt((normal**2).sum(axis=0)), 1e-30)
    columns = np.stack([reflected(n_x, n_y, n_z, unit.tolist()) for unit in np.eye(9)], axis=1)
    # The scan is smooth, so its normals are much alike: what they do not tell apart stays small.
    square = columns.T @ columns + 1e-3 * len(columns) * np.eye(9)
    return np.linalg.solve(square, columns.T @ brightness[1:, 1:][known]).astype(np.float32)


def ball(light: NDArray[Any], size: int) -> Picture:
    """A white ball in a light, on white, `size` pixels high."""
    y, x = (np.mgrid[:size, :size] + 0.5) / size * 2 - 1
    inside = x**2 + y**2 < 0.9
    z = -np.sqrt(np.maximum(1 - x**2 - y**2, 0))
    lit = reflected(x, y, z, light.tolist())
    return np.where(inside, np.clip(lit / np.quantile(lit[inside], 0.99), 0, 1), 1.0)


OPTIONS: dict[str, Any] = dict(initial_radius=20.0)
"""Of the solve: shape and light explain the same brightness at first, so that steps with less damping overshoot."""

# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="shape_and_shading.png", method="lm", iterations=60)
def main(settings: Settings) -> None:
    """Refines a depth scan by a photograph in unknown light; draws its surface before and after, and a ball so lit."""
    scan = known_light.default_scan(settings.size)
    data = with_unknown_light(scan)
    result = solve(energy, data, settings, **OPTIONS)
    if not settings.quiet:
        print("light:", *(f"{x:.3f}" for x in result.x["L"].tolist()))
    panels = [scan.drawn(data["X"]), scan.drawn(result.x["X"])]
    pictures.save_side_by_side(settings.output, [*panels, ball(result.x["L"], len(panels[0]))])


if __name__ == "__main__":
    main()
