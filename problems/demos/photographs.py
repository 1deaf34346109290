"""Pictures that users give and take: photographs and masks at a size that is solved quickly, PNG files."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from .. import pictures
from ..pictures import Picture


@dataclass(frozen=True, slots=True)
class PhotographFile:
    """A photograph as it is solved.

    Attributes:
        picture: (H, W, 3), 0 to 1.
        name: of its file.
        whole: (H, W) of the file.
    """

    picture: Picture
    name: str
    whole: tuple[int, int]

    @property
    def scaled(self) -> str:
        """A sentence on how it was scaled down; empty where it was not."""
        height, width = self.picture.shape[:2]
        if (height, width) == self.whole:
            return ""
        return (
            f"{self.name} has {self.whole[1]} x {self.whole[0]} pixels: it is solved at {width} x {height}, "
            "--size N changes that"
        )


def read_photograph(path: Path, size: int) -> PhotographFile:
    """Reads a photograph of any kind that Pillow reads, upright, on white where it is transparent.

    Args:
        path: of the file.
        size: pixels along the longer side at most; larger ones are scaled down.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is no picture, was cut short, or is too large to be read.
    """
    image = _opened(path)
    whole = image.height, image.width
    if max(whole) > size:
        scale = size / max(whole)
        small = max(1, round(scale * image.width)), max(1, round(scale * image.height))
        image = image.resize(small, Image.Resampling.BICUBIC, reducing_gap=3.0)
    return PhotographFile(np.asarray(image, np.float64) / 255, path.name, whole)


def read_mask(path: Path, photograph: PhotographFile) -> NDArray[np.uint8]:
    """Reads a mask as the energy of `problems.image_warping` takes it: (H, W), 0 where a pixel takes part.

    Args:
        path: of a picture as large as the photograph's file: black where the photograph takes part.
        photograph: whose mask it is.

    Raises:
        FileNotFoundError: it is not there.
        ValueError: it is no picture, or not as large as the photograph, or no pixel is black.
    """
    red = np.asarray(_opened(path), np.uint8)[..., 0]
    if red.shape != photograph.whole:
        raise ValueError(
            f"the mask {path.name} has {red.shape[1]} x {red.shape[0]} pixels, the photograph {photograph.name} "
            f"{photograph.whole[1]} x {photograph.whole[0]}: both must be of one size"
        )
    height, width = photograph.picture.shape[:2]
    mask = pictures.resize_mask((red > 127).astype(np.uint8), (height, width))
    if mask.all():
        raise ValueError(
            f"the mask {path.name} is empty: a pixel takes part where the mask is black, and it is black nowhere"
        )
    return mask


def png(picture: Picture) -> bytes:
    """A picture, (H, W, 3), 0 to 1, as a PNG file."""
    file = io.BytesIO()
    Image.fromarray(np.rint(255 * np.clip(picture, 0, 1)).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def _opened(path: Path) -> Image.Image:
    """(H, W) in RGB of 8 bits."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # large ones are scaled down
            with Image.open(path) as opened:
                return _in_rgb(ImageOps.exif_transpose(opened))
    except Image.DecompressionBombError as error:
        raise ValueError(f"{path} is too large to be read: scale it down first ({error})") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(f"there is no file {path}") from error
    except UnidentifiedImageError as error:
        raise ValueError(f"{path} is no picture that Pillow reads, such as PNG or JPEG") from error
    except (OSError, SyntaxError, ValueError) as error:  # what Pillow's readers raise for broken files
        raise ValueError(f"{path} cannot be read as a picture: {error}") from error


def _in_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits, which `convert` would cut off
        return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.mode == "F":
        raise ValueError("it has real numbers, whose white is not known")
    coloured = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", coloured.size, "white"), coloured).convert("RGB")
