"""Draws the pictures of docs/gallery/ by the commands of its pages: ``python -m tests.support.gallery_pictures``."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

GALLERY = Path(__file__).resolve().parents[2] / "docs" / "gallery"

WIDTH = 1000
"""Pixels across a page at most."""


def commands() -> dict[str, list[str]]:
    """The commands of all pages, in their order: the name of a problem to the arguments of ``optpy``."""
    texts = "".join(page.read_text(encoding="utf-8") for page in sorted(GALLERY.glob("*.md")))
    lines = re.findall(r"^\$ optpy (example .+)$", texts, flags=re.MULTILINE)
    return {words[1]: words for words in map(shlex.split, lines)}


def draw(words: list[str], folder: Path) -> Path:
    """Run a command in a folder, and keep its picture, small, among the pages. Real data is left aside.

    Raises:
        CalledProcessError: the command has failed.
    """
    environment = {**os.environ, "OPTPY_DATA": ""}
    subprocess.run([sys.executable, "-m", "optpy", *words, "--quiet"], cwd=folder, env=environment, check=True)
    written = folder / words[words.index("--output") + 1]
    kept = (GALLERY / written.name).with_suffix(".jpg")
    with Image.open(written) as picture:
        small = picture.convert("RGB")
    small.thumbnail((WIDTH, WIDTH), Image.Resampling.LANCZOS)
    small.save(kept, quality=85, optimize=True)
    return kept


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        for arguments in commands().values():
            print(draw(arguments, Path(temporary)), flush=True)
