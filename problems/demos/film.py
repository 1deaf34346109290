"""Films of pictures as animated GIF files."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image

from optpy.cli.output_file import whole_file

from ..pictures import Picture

_COLOURS: Final = 96
"""As many as a shaded surface of three colours needs, and few enough for small files."""


def write_gif(path: Path, pictures: Iterable[Picture], frames_per_second: float) -> None:
    """Writes pictures, (H, W, 3) from 0 to 1, as a film that begins anew at its end.

    A GIF counts in hundredths of a second, to which the time of a frame is rounded.

    Raises:
        ValueError: there is no picture.
        OSError: the file cannot be written.
    """
    images = [Image.fromarray((np.clip(p, 0, 1) * 255 + 0.5).astype(np.uint8)) for p in pictures]
    if not images:
        raise ValueError("a film needs a picture: none was given")
    # One palette for all, of the first, the middle and the last: colours do not flicker.
    chosen = [np.asarray(images[n]) for n in (0, len(images) // 2, -1)]
    palette = Image.fromarray(np.concatenate(chosen)).quantize(_COLOURS)
    few = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    made = io.BytesIO()
    duration = max(round(100 / frames_per_second), 1) * 10
    few[0].save(made, "GIF", save_all=True, append_images=few[1:], duration=duration, loop=0, optimize=True)
    with whole_file(path) as file:
        file.write(made.getvalue())
