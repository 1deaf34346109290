"""The pictures that the problems start from, and the picture of before and after that they leave."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from optpy.cli.output_file import whole_file

Picture = NDArray[np.float64]
"""(H, W) grey or (H, W, C) colour, 0 black to 1 white."""

GAP = 8
"""White pixels between the panels of a before-and-after picture."""


def data_folder() -> Path | None:
    """The folder of real data beside the checkout, or None where there is none.

    The environment variable `OPTPY_DATA` names it; set but empty, it means "do without".
    Without the variable it is `../shared/data` beside the checkout.

    Raises:
        FileNotFoundError: `OPTPY_DATA` names a folder that is not there.
    """
    named = os.environ.get("OPTPY_DATA")
    if named is not None:
        if not named:
            return None
        if not Path(named).is_dir():
            raise FileNotFoundError(f"OPTPY_DATA names {named!r}, which is no folder")
        return Path(named)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return beside if beside.is_dir() else None


def data_file(name: str) -> Path | None:
    """The file `name` of the data folder, or None where folder or file is missing."""
    folder = data_folder()
    if folder is None or not (folder / name).is_file():
        return None
    return folder / name


def shipped_picture(name: str) -> Picture:
    """A photograph that lies inside scikit-image's wheel, for example "astronaut.png".

    The wheel's own list of files is asked, so that nothing is ever downloaded.

    Raises:
        FileNotFoundError: scikit-image is not installed, or this release of it does not ship the picture.
    """
    try:
        files = importlib.metadata.files("scikit-image") or []
    except importlib.metadata.PackageNotFoundError as missing:
        raise FileNotFoundError(
            f"{name} ships inside scikit-image, which is not installed: pip install 'optpy[problems]'"
        ) from missing
    for file in files:
        if file.match(f"data/{name}"):
            return read_picture(Path(str(file.locate())))
    raise FileNotFoundError(f"this release of scikit-image does not ship {name}")


def read_picture(path: Path) -> Picture:
    """Reads a picture of 8 bits a channel: (H, W) or (H, W, C), 0 to 1."""
    with Image.open(path) as opened:
        return np.asarray(opened, dtype=np.float64) / 255.0


def longest_side(picture: NDArray[Any]) -> int:
    """The larger of height and width, in pixels."""
    return int(max(picture.shape[0], picture.shape[1]))


def resize(picture: Picture, shape: tuple[int, int]) -> Picture:
    """Resamples a picture to `shape`, (H, W), with an antialiased cubic; the values stay in 0 to 1."""
    if picture.shape[:2] == shape:
        return picture
    planes = picture.reshape(*picture.shape[:2], -1)
    resized = np.stack([_resize_plane(planes[..., c], shape) for c in range(planes.shape[2])], axis=-1)
    return np.clip(resized.reshape(*shape, *picture.shape[2:]), 0.0, 1.0)


def _resize_plane(plane: NDArray[np.float64], shape: tuple[int, int]) -> NDArray[np.float64]:
    image = Image.fromarray(plane.astype(np.float32))
    return np.asarray(image.resize((shape[1], shape[0]), Image.Resampling.BICUBIC), dtype=np.float64)


def resize_longest_side(picture: Picture, size: int | None) -> Picture:
    """Resamples a picture so that its longer side has `size` pixels; None leaves it alone."""
    if size is None:
        return picture
    scale = size / longest_side(picture)
    height, width = (max(1, round(scale * n)) for n in picture.shape[:2])
    return resize(picture, (height, width))


def resize_mask(mask: NDArray[np.uint8], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """Resamples a mask to `shape` by its nearest pixels, so that no value in between appears."""
    rows, columns = (np.arange(n) * m // n for n, m in zip(shape, mask.shape, strict=True))
    return np.ascontiguousarray(mask[np.ix_(rows, columns)])


def flatten_on_white(picture: Picture) -> Picture:
    """A picture with an alpha channel (H, W, 4), laid on white: (H, W, 3); others come back as they are."""
    if picture.ndim < 3 or picture.shape[2] != 4:
        return picture
    alpha = picture[..., 3:]
    return alpha * picture[..., :3] + (1.0 - alpha)


def is_picture_name(path: Path) -> bool:
    """Whether the ending of a file's name is that of a picture format that can be written."""
    return Image.registered_extensions().get(path.suffix.lower()) in Image.SAVE


def save_side_by_side(path: Path, panels: Sequence[Picture]) -> None:
    """Writes pictures of one height beside each other, on white, as one picture file.

    Raises:
        ValueError: the suffix of `path` names no picture format.
        FileNotFoundError: its folder is not there.
    """
    coloured = [np.broadcast_to(p[..., None], (*p.shape, 3)) if p.ndim == 2 else p for p in panels]
    gap = np.ones((coloured[0].shape[0], GAP, 3))
    row = [part for panel in coloured for part in (panel, gap)][:-1]
    pixels = np.rint(255 * np.clip(np.concatenate(row, axis=1), 0, 1)).astype(np.uint8)
    with whole_file(path) as file:
        Image.fromarray(pixels).save(file, Image.registered_extensions().get(path.suffix.lower()))
