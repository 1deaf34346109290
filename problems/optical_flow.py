"""The motion between two frames of a film: `python -m problems.optical_flow`.

Each pixel of the first frame is looked for in the second, which is read between its pixels. Of motions that explain the
frames equally well the smoothest is taken; a robust loss lets it jump where something moves before something else.
Large motions are found in small pictures first, and refined in larger ones.

Reference: B. Horn, B. Schunck: Determining Optical Flow, Artificial Intelligence 17, 1981, as in Z. DeVito et al.: Opt,
ACM Transactions on Graphics 36(5), 2017. Robust, with gradients: T. Brox, A. Bruhn, N. Papenberg, J. Weickert: High
Accuracy Optical Flow Estimation Based on a Theory for Warping, ECCV 2004. Medians between the warps: D. Sun, S. Roth,
M. Black: Secrets of Optical Flow Estimation and Their Principles, CVPR 2010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter, map_coordinates, median_filter, zoom

import optpy as op

from . import pictures
from .command import Settings, choice, command, size_option
from .pictures import Picture

# ---- the energy --------------------------------------------------------------------------------------------

H, W = op.dims("H W")
i, j = op.indices(H, W)

Flow = op.Unknown("Flow", (H, W), 2)  # motion in pixels: to the right, downward
w_smooth = op.params("w_smooth")


def place() -> tuple[Any, Any]:
    """The point (y, x) of the second frame that a pixel of the first one has moved to."""
    u, v = Flow[i, j]
    return op.value(i) + v, op.value(j) + u


First, Second = op.Array("First", (H, W)), op.Array("Second", (H, W))

energy = op.Energy(
    fit=op.Sampled(Second)(*place()) - First[i, j],
    smooth=[w_smooth * (Flow[i, j] - Flow[i + 1, j]), w_smooth * (Flow[i, j] - Flow[i, j + 1])],
)

First3, Second3 = op.Array("First", (H, W), 3), op.Array("Second", (H, W), 3)  # brightness and its two slopes
s_fit, s_smooth = op.params("s_fit s_smooth")
Still = op.Array("Still", (H, W))  # how little the brightness changes: edges of things are where it does


def inside(y: Any, x: Any) -> Any:
    """Whether a point is in the picture: what has left it cannot be compared."""
    return (y >= 0) & (x >= 0) & (y <= op.value(H) - 1) & (x <= op.value(W) - 1)


def change() -> Any:
    """The change of the flow to the next pixels, within the picture."""
    return op.vector(
        *op.where(op.in_bounds(i + 1, j), Flow[i, j] - Flow[i + 1, j], 0),
        *op.where(op.in_bounds(i, j + 1), Flow[i, j] - Flow[i, j + 1], 0),
    )


changed = op.Sampled(Second3, method="cubic")(*place()) - First3[i, j]  # cubic: solves find no kinks

robust = op.Energy(
    fit=op.where(inside(*place()), op.robust(changed, "soft_l1", s_fit), 0),
    smooth=w_smooth * Still[i, j] * op.robust(change(), "soft_l1", s_smooth),
)
"""The same with outliers in both terms, for frames with slopes: it is what the program solves."""

# ---- its data ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Film:
    """Two frames of a film.

    Attributes:
        first, second: (H, W) or (H, W, 3), 0 to 1.
        truth: (H, W, 2): the motion, NaN where it is not known; None: nowhere.
    """

    first: Picture
    second: Picture
    truth: NDArray[np.float64] | None = None

    def error(self, flow: NDArray[np.floating]) -> float:
        """The mean distance between the ends of a flow's arrows and of the true ones, in pixels.

        Raises:
            ValueError: the truth is not known.
        """
        if self.truth is None:
            raise ValueError("nobody knows the motion between these frames")
        return float(np.nanmean(np.linalg.norm(flow - self.truth, axis=-1)))


def film(name: str, size: int | None = None) -> Film:
    """Frames by name.

    Args:
        name: a folder of the data folder's optical_flow, "made", or "auto".
        size: pixels along the longer side; None: as they are.

    Raises:
        FileNotFoundError: the folder is not there.
    """
    if name == "auto":
        name = "sintel_alley_1" if pictures.data_file("optical_flow/sintel_alley_1/frame_0002.png") else "made"
    if name == "made":
        return turning(size or 256)
    found = pictures.data_file(f"optical_flow/{name}/frame_0002.png")
    if found is None:
        raise FileNotFoundError(f"{name} needs the data folder: see OPTPY_DATA in docs/gallery/index.md")
    first, second = (pictures.read_picture(found.with_name(f"frame_000{n}.png")) for n in (2, 3))
    truth = read_flo(found.with_name("flow_0002.flo"))
    if size is None:
        return Film(first, second, truth)
    small = [pictures.resize_longest_side(p, size) for p in (first, second)]
    return Film(small[0], small[1], resized(np.nan_to_num(truth), small[0].shape[:2]))


def read_flo(path: Path) -> NDArray[np.float64]:
    """Reads a flow of Middlebury's format: 202021.25, width, height, then (u, v) at each pixel; NaN: not known.

    Raises:
        ValueError: the file does not have as many numbers as it says, or is none of these.
    """
    numbers = np.fromfile(path, "<f4")
    width, height = numbers[1:3].view("<i4").tolist() if len(numbers) >= 3 else (0, 0)
    if len(numbers) < 3 or numbers[0] != np.float32(202021.25) or len(numbers) != 3 + 2 * width * height:
        raise ValueError(f"{path} is no .flo file, or was cut short")
    flow = numbers[3:].astype(np.float64).reshape(height, width, 2)
    return np.where((np.abs(flow) > 1e9).any(axis=-1, keepdims=True), np.nan, flow)


def turning(size: int = 256) -> Film:
    """A made texture that turns and grows, by some pixels at its corners.

    Args:
        size: pixels along each side.
    """
    rng = np.random.default_rng(0)
    texture = sum(s * gaussian_filter(rng.normal(size=(size, size)), s, mode="wrap") for s in (1.5, 3, 6, 12))
    second = 0.5 + 0.12 * texture / np.std(texture)
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    truth = np.stack([0.015 * x - 0.02 * y, 0.02 * x + 0.015 * y], axis=-1) + [1.5, -0.8]
    at = np.mgrid[:size, :size] + np.moveaxis(truth[..., ::-1], -1, 0)
    return Film(map_coordinates(second, at, order=3, mode="nearest"), second, truth)


def resized(planes: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """A flow in a picture of another size: (H, W, 2)."""
    scale = np.divide(shape, planes.shape[:2])
    zoomed: NDArray[np.float64] = zoom(planes, (*scale, 1), order=1, mode="nearest", grid_mode=True)
    return zoomed * scale[::-1]


SMALLEST, SCALE = 24, 0.65
"""Pixels along the shorter side of the smallest pictures, and the size of each picture by that of the next."""


def sizes(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """The sizes of pictures, from the smallest to a given one."""
    found = [(shape[0], shape[1])]
    while min(found[-1]) * SCALE >= SMALLEST:
        found.append((round(found[-1][0] * SCALE), round(found[-1][1] * SCALE)))
    return found[::-1]


def grey(picture: Picture) -> NDArray[np.float64]:
    """The brightness of a picture, 0 to 255."""
    mean: Picture = picture @ [0.299, 0.587, 0.114] if picture.ndim == 3 else picture
    return 255 * mean


def slopes_beside(brightness: NDArray[np.float64]) -> NDArray[np.float64]:
    """(H, W, 3): the brightness, a little, and its slopes, which stay where lights change."""
    return np.stack([0.3 * brightness, *reversed(np.gradient(brightness))], axis=-1)


def frames(film: Film, shape: tuple[int, int]) -> dict[str, Any]:
    """What the robust energy needs of a film's frames, at some size."""
    ratio = len(film.first) / shape[0]
    blurred = (gaussian_filter(grey(p), 0.5 * max(ratio, 1.2)) for p in (film.first, film.second))
    first, second = (zoom(b, np.divide(shape, b.shape), order=1, mode="nearest", grid_mode=True) for b in blurred)
    edge = np.hypot(*np.gradient(first))
    return dict(First=slopes_beside(first), Second=slopes_beside(second), Still=np.exp(-0.05 * edge) + 0.05)


PARAMS: Final = dict(w_smooth=8.0, s_fit=1.0, s_smooth=0.1)


@dataclass(frozen=True, slots=True)
class Level:
    """The flow that was found in pictures of one size."""

    flow: NDArray[np.floating]
    result: op.SolveResult


def coarse_to_fine(film: Film, rounds: int = 3, **options: Any) -> Iterator[Level]:
    """The flow at one size after the other, the film's own last.

    Args:
        rounds: of solves for each size; after each the flow's median is taken, which removes lonely outliers.
        options: of `op.solve`.
    """
    flow: NDArray[np.floating] = np.zeros((1, 1, 2))
    for shape in sizes(film.first.shape):
        flow, data = resized(flow.astype(np.float64), shape), frames(film, shape)
        for _ in range(rounds):
            start = median_filter(flow, (5, 5, 1)).astype(options["dtype"])
            given = {name: value.astype(start.dtype) for name, value in data.items()}
            result = op.solve(robust, {"Flow": start, **given, **PARAMS}, **options)
            flow = result.x["Flow"]
        yield Level(flow, result)


# ---- its picture -------------------------------------------------------------------------------------------


def drawn(flow: NDArray[np.floating], largest: float | None = None) -> Picture:
    """A flow in the colours of Middlebury's wheel: the direction as a hue, the length from white on.

    Args:
        flow: (H, W, 2); black where it is NaN.
        largest: length with full colour; None: that of the longest arrow.

    Reference: S. Baker et al.: A Database and Evaluation Methodology for Optical Flow, IJCV 92, 2011.
    """
    u, v = np.moveaxis(flow.astype(np.float64), -1, 0)
    length = np.hypot(u, v)
    length = length / max(np.nanmax(length) if largest is None else largest, 1e-12)
    wheel = colour_wheel()
    turn = (np.arctan2(-v, -u) / np.pi + 1) / 2 * (len(wheel) - 1)
    first = np.nan_to_num(turn).astype(int) % len(wheel)
    part = (turn - np.floor(turn))[..., None]
    hue = (1 - part) * wheel[first] + part * wheel[(first + 1) % len(wheel)]
    shown: Picture = np.where(length[..., None] <= 1, 1 - length[..., None] * (1 - hue), 0.75 * hue)
    return np.nan_to_num(shown)


def colour_wheel() -> NDArray[np.float64]:
    """(55, 3): red, yellow, green, cyan, blue, magenta, with as many steps between them as eyes tell apart."""
    corners = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1], [1, 0, 1], [1, 0, 0]], float)
    steps = (15, 6, 4, 11, 13, 6)
    return np.concatenate([np.linspace(corners[n], corners[n + 1], k, endpoint=False) for n, k in enumerate(steps)])


# ---- the program -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowSettings(Settings):
    """The choices of one run."""

    film: str


_OPTIONS = [
    choice("--film", ["auto", "made", "sintel_alley_1", "sintel_cave_2"], "auto", "Which frames."),
    size_option(),
]


@command(FlowSettings, _OPTIONS, output="optical_flow.png", method="lm", iterations=5)
def main(settings: FlowSettings) -> None:
    """Finds the motion between two frames of a film, and draws the first frame, the motion, and the true one."""
    taken = film(settings.film, settings.size)
    options: dict[str, Any] = dict(device=settings.device, dtype=settings.dtype, method=settings.method)
    for level in coarse_to_fine(taken, max_iterations=settings.iterations, **options):
        if not settings.quiet:
            height, width = level.flow.shape[:2]
            click.echo(f"{width} x {height}: cost {level.result.cost:.6g} after {level.result.nit} iterations")
    if taken.truth is not None and not settings.quiet:
        click.echo(f"mean end-point error: {taken.error(level.flow):.3f} pixels")
    shown = [f for f in (level.flow, taken.truth) if f is not None]
    largest = max(float(np.nanmax(np.linalg.norm(f, axis=-1))) for f in shown)
    pictures.save_side_by_side(settings.output, [taken.first, *(drawn(f, largest) for f in shown)])


if __name__ == "__main__":
    main()
