"""A depth scan refined by a photograph of the same scene: `python -m problems.shape_from_shading`.

The scan gives the coarse shape. The shading of the photograph, explained by spherical harmonics of the light, gives the
fine one: what its changes from pixel to pixel say of the surface's normals. The surface is smooth where the scan is.

Reference: C. Wu, M. Zollhoefer, M. Niessner, M. Stamminger, S. Izadi, C. Theobalt: Real-time Shading-based Refinement
for Consumer Depth Cameras, ACM Transactions on Graphics 33(6), 2014; in the form of Z. DeVito et al.: Opt, ACM
Transactions on Graphics 36(5), 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import optpy as op

from . import pictures
from .command import Settings, problem_command, solve
from .pictures import Picture

# ---- the energy --------------------------------------------------------------------------------------------

H, W = op.dims("H W")
i, j = op.indices(H, W)

X = op.Unknown("X", (H, W))  # depth, in metres
D = op.Array("D", (H, W))  # the scan; not positive: nothing was measured
Im = op.Array("Im", (H, W))  # brightness
across, down = op.Array("across", (H, W), dtype=np.uint8), op.Array("down", (H, W), dtype=np.uint8)
"""1: shading may be compared with that of the next pixel."""
w_fit, w_smooth, w_shade = op.params("w_fit w_smooth w_shade")
focal_x, focal_y, centre_x, centre_y = op.params("focal_x focal_y centre_x centre_y")
light = op.params(" ".join(f"light{n}" for n in range(9)))


def direction(here: Any, left: Any, up: Any, x: Any, y: Any, focal_x: Any, focal_y: Any) -> tuple[Any, Any, Any]:
    """A normal of the surface through three neighbouring depths, of some length.

    Args:
        x, y: of the pixel, in a picture of focal length 1.
    """
    n_x = up * (here - left) / focal_y
    n_y = left * (here - up) / focal_x
    return n_x, n_y, -n_x * x - n_y * y - left * up / (focal_x * focal_y)


def reflected(n_x: Any, n_y: Any, n_z: Any, light: Sequence[Any]) -> Any:
    """Brightness of a surface with a unit normal, by the light's first nine spherical harmonics."""
    linear = light[0] + light[1] * n_y + light[2] * n_z + light[3] * n_x
    mixed = light[4] * n_x * n_y + light[5] * n_y * n_z + light[7] * n_z * n_x
    return linear + mixed + light[6] * (2 * n_z**2 - n_x**2 - n_y**2) + light[8] * (n_x**2 - n_y**2)


def all_around(x: int, y: int) -> Any:
    """Whether a pixel has all its neighbours."""
    return op.in_bounds(i + y - 1, j + x - 1) & op.in_bounds(i + y + 1, j + x + 1)


def place(x: int, y: int) -> tuple[Any, Any]:
    """A pixel's coordinates in a picture of focal length 1."""
    return (op.value(j + x) - centre_x) / focal_x, (op.value(i + y) - centre_y) / focal_y


def point(x: int, y: int) -> Any:
    """The point in space that a pixel shows."""
    right, below = place(x, y)
    return X[i + y, j + x] * op.vector(right, below, 1)


def unexplained(x: int, y: int, light: Sequence[Any] = light) -> Any:
    """The part of a pixel's brightness that shading does not explain, by a light's coefficients."""
    here, left, up = (i + y, j + x), (i + y, j + x - 1), (i + y - 1, j + x)
    n_x, n_y, n_z = direction(X[here], X[left], X[up], *place(x, y), focal_x, focal_y)
    square = n_x**2 + n_y**2 + n_z**2
    scale = op.where(square > 0, 1 / op.sqrt(square), 1)
    seen = 0.5 * Im[here] + 0.25 * (Im[left] + Im[up])
    valid = (D[here] > 0) & (D[left] > 0) & (D[up] > 0)
    return op.where(all_around(x, y) & valid, reflected(n_x * scale, n_y * scale, n_z * scale, light) - seen, 0)


def continues(x: int, y: int) -> Any:
    """Whether the surface goes on at a neighbour: depths that differ by a centimetre belong to different surfaces."""
    return (D[i + y, j + x] > 0) & (abs(X[i, j] - X[i + y, j + x]) < 0.01)


def contrast(here: Any, there: Any) -> Any:
    """The difference between a pixel and a neighbour that shading does not explain."""
    return op.where(all_around(0, 0), op.sqrt(w_shade) * (here - there), 0)


NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1)]


def curvature(whole: Any) -> Any:
    """The point of a pixel against those around it, where the surface is whole there."""
    return op.where(whole, op.sqrt(w_smooth) * (4 * point(0, 0) - sum(point(*n) for n in NEIGHBOURS)), 0)


fit = op.where(D[i, j] > 0, op.sqrt(w_fit) * (X[i, j] - D[i, j]), 0)
surface_goes_on = all_around(0, 0) & (D[i, j] > 0) & op.vector(*(continues(*n) for n in NEIGHBOURS)).all()

B, whole = op.Func("B", (H, W)), op.Func("whole", (H, W))
B[i, j] = unexplained(0, 0)
whole[i, j] = surface_goes_on

energy = op.Energy(
    fit=fit,
    shade=[contrast(B[i, j], B[i, j + 1]) * across[i, j], contrast(B[i, j], B[i + 1, j]) * down[i, j]],
    smooth=curvature(whole[i, j]),
    fixed={X: ~(D[i, j] > 0)},
)

inline = op.Energy(
    fit=fit,
    shade=[
        contrast(unexplained(0, 0), unexplained(1, 0)) * across[i, j],
        contrast(unexplained(0, 0), unexplained(0, 1)) * down[i, j],
    ],
    smooth=curvature(surface_goes_on),
    fixed={X: ~(D[i, j] > 0)},
)
"""The same without intermediates: the brightness is written out for each pixel that is compared."""

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scan:
    """A scan with the data of its refinement."""

    data: dict[str, Any]
    """What the energy needs, by name."""
    truth: NDArray[np.float64] | None = None
    """(H, W): the depth that was there, where that is known."""

    def drawn(self, depth: NDArray[np.floating]) -> Picture:
        """The surface of a depth, lit from the upper left, (H, W); white where nothing was measured."""
        normal = normals(self.data, depth.astype(np.float64))
        toward = np.array([-0.5, -0.5, -0.7]) / np.sqrt(0.99)
        lit = np.tensordot(toward, normal, 1) / np.maximum(np.sqrt((normal**2).sum(0)), 1e-30)
        measured = self.data["D"] > 0
        known = measured[1:, 1:] & measured[1:, :-1] & measured[:-1, 1:]
        shown = np.ones(depth.shape)
        shown[1:, 1:][known] = (0.15 + 0.85 * np.clip(lit, 0, 1))[known]
        return shown


def default_scan(size: int | None = None) -> Scan:
    """The scan of the data folder where that is there, a made one elsewhere.

    Args:
        size: pixels along the longer side of the made one; None is 256.
    """
    if size is None and pictures.data_file("shape_from_shading/default.npz") is not None:
        return statue()
    return relief(size or 256)


def statue() -> Scan:
    """The scan that Opt was presented with, 640 x 480, by M. Zollhoefer.

    Raises:
        FileNotFoundError: the data folder is not there.
    """
    found = pictures.data_file("shape_from_shading/default.SFSSolverParameters")
    if found is None:
        raise FileNotFoundError("shape_from_shading needs the data folder: see OPTPY_DATA in docs/gallery/index.md")
    start, scan, brightness, edges = (
        read_image_dump(found.with_name(f"default_{name}.imagedump"))
        for name in ("initialUnknown", "targetDepth", "targetIntensity", "maskEdgeMap")
    )
    numbers = np.fromfile(found, "<f4", 36).astype(float).tolist()
    rows = len(scan)
    data = dict(
        X=_finite(start), D=_finite(scan), Im=brightness, across=edges[:rows], down=edges[rows:],
        w_fit=numbers[0], w_smooth=numbers[1], w_shade=numbers[3],
        focal_x=numbers[7], focal_y=numbers[8], centre_x=numbers[9], centre_y=numbers[10],
    )  # fmt: skip
    return Scan(data | {f"light{n}": value for n, value in enumerate(numbers[27:36])})


def read_image_dump(path: Path) -> NDArray[Any]:
    """Reads an .imagedump file: width, height, channels and type, (0: float32, 1: uint8), then (H, W) numbers.

    Raises:
        ValueError: the file does not have as many numbers as it says, or has several channels.
    """
    width, height, channels, kind = np.fromfile(path, "<i4", 4).tolist()
    numbers: NDArray[Any] = np.fromfile(path, {0: "<f4", 1: "u1"}[kind], offset=16)
    if channels != 1 or len(numbers) != width * height:
        raise ValueError(f"{path}: {width} x {height} x {channels} numbers announced, {len(numbers)} found")
    return numbers.reshape(height, width)


def _finite(depth: NDArray[np.float32]) -> NDArray[np.float32]:
    """Depths, -10000 where nothing was measured."""
    return np.where(np.isfinite(depth), depth, np.float32(-10000))


LIGHT = (0.45, -0.2, -0.35, -0.25, 0.05, 0.1, 0.05, 0.1, 0.05)
"""Mostly from the front, from the left and from above."""


def relief(size: int = 256) -> Scan:
    """A made relief of a disc, half a metre away: its scan is blurred and noisy, its picture shows every wave.

    Args:
        size: pixels along each side.
    """
    y, x = (np.mgrid[:size, :size] + 0.5) / size - 0.5
    radius = np.hypot(x, y)
    waves = 0.0008 * np.cos(70 * radius) + 0.0005 * np.sin(50 * x) * np.sin(40 * y)
    truth = 0.5 - 0.05 * np.exp(-8 * radius**2) - waves
    focal, centre = float(size), size / 2
    camera = dict(focal_x=focal, focal_y=focal, centre_x=centre, centre_y=centre)
    normal = normals(camera, truth)
    n_x, n_y, n_z = normal / np.sqrt((normal**2).sum(0))
    shading = np.pad(reflected(n_x, n_y, n_z, LIGHT), ((1, 0), (1, 0)), "edge").astype(np.float32)
    blurred = gaussian_filter(truth, size / 40) + 5e-5 * np.random.default_rng(0).normal(size=truth.shape)
    scan = np.where(radius < 0.45, blurred, 0).astype(np.float32)
    everywhere = np.ones(truth.shape, np.uint8)
    data = dict(
        X=scan.copy(), D=scan, Im=shading,
        across=everywhere, down=everywhere, w_fit=10.0, w_smooth=1.0, w_shade=1.0, **camera,
    )  # fmt: skip
    return Scan(data | {f"light{n}": value for n, value in enumerate(LIGHT)}, truth)


def normals(data: dict[str, Any], depth: NDArray[np.float64]) -> NDArray[np.float64]:
    """(3, H - 1, W - 1): normals, of some length, at all pixels but those of the first row and column."""
    row, column = np.mgrid[1 : depth.shape[0], 1 : depth.shape[1]].astype(np.float64)
    focal_x, focal_y = data["focal_x"], data["focal_y"]
    x, y = (column - data["centre_x"]) / focal_x, (row - data["centre_y"]) / focal_y
    return np.stack(direction(depth[1:, 1:], depth[1:, :-1], depth[:-1, 1:], x, y, focal_x, focal_y))


# ---- the program -------------------------------------------------------------------------------------------


@problem_command(output="shape_from_shading.png", method="lm", iterations=60)
def main(settings: Settings) -> None:
    """Refines a depth scan by the shading of a photograph, and draws its surface before and after."""
    scan = default_scan(settings.size)
    result = solve(energy, scan.data, settings)
    pictures.save_side_by_side(settings.output, [scan.drawn(scan.data["X"]), scan.drawn(result.x["X"])])


if __name__ == "__main__":
    main()
