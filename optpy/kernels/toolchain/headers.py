"""Headers of optpy, as texts: sources are put together from them, so that the key of what is compiled covers them."""

from __future__ import annotations

import re
from pathlib import Path

from optpy.errors import InternalError

_PACKAGE = Path(__file__).parents[2]


def native_header(path: str) -> str:
    """The text of a header, by its path in the package: "kernels/c/team.h"."""
    return (_PACKAGE / path).read_text(encoding="utf-8")


def header_constant(path: str, name: str) -> int:
    """A whole number that a header defines, for Python to go by.

    Args:
        path: of the header in the package.
        name: of the macro.
    """
    found = re.search(rf"^#define {name} (\d+)\b", native_header(path), re.MULTILINE)
    if found is None:
        raise InternalError(f"{path} does not define {name} as a whole number")
    return int(found[1])
