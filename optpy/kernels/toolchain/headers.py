"""Headers of optpy, as texts: sources are put together from them, so that the key of what is compiled covers them."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


def native_header(path: str) -> str:
    """The text of a header, by its path in the package: "kernels/c/team.h"."""
    return (_PACKAGE / path).read_text(encoding="utf-8")
