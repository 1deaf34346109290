"""The names that users give to their indices, so that messages can call them by these."""

from __future__ import annotations

import dis
import re
from itertools import pairwise
from types import FrameType
from typing import Final

_SERIAL: Final = re.compile(r"#\d+")
_REMAINDER: Final = re.compile(r"-(\d+)\*\(\(([^()]+)\) // \1\) \+ \2(?!\w)")
_SINGLE: Final = re.compile(r"\((-?\w+)\) (//|%)")


def assigned_names(frame: FrameType, count: int) -> tuple[str, ...] | None:
    """The names to which a frame is about to assign the result of its current call.

    Read from the bytecode after the call, as the source is not there in every interpreter.

    Args:
        frame: where the call is.
        count: how many values it returns, in a tuple if more than one.

    Returns:
        ("i", "j") for ``i, j = call(...)``; None where it is no such assignment.
    """
    names: list[str] = []
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset <= frame.f_lasti:
            continue
        if instruction.opname == "UNPACK_SEQUENCE" and not names and instruction.argval == count > 1:
            continue
        if not instruction.opname.startswith(("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF")):
            return None
        # Newer interpreters join two instructions; a second part that only loads comes after the last name.
        names += instruction.argval if isinstance(instruction.argval, tuple) else [instruction.argval]
        if len(names) >= count:
            return tuple(names[:count])
    return None


def unpacked_count(frame: FrameType) -> int | None:
    """Into how many values a frame is about to unpack the item that it is taking; None where it is doing neither.

    Args:
        frame: where the item is taken: 3 for ``a, b, c = graph[e]``.
    """
    for taking, after in pairwise(dis.get_instructions(frame.f_code)):
        if taking.offset == frame.f_lasti:
            takes_item = taking.opname == "BINARY_SUBSCR" or taking.argrepr == "[]"  # the second from Python 3.14 on
            return int(after.argval) if takes_item and after.opname == "UNPACK_SEQUENCE" else None
    return None


def numbered(name: str, serial: int) -> str:
    """A name that no other index has: two indices may both be called i."""
    return f"{name}#{serial}"


def shown(text: object) -> str:
    """A text with the names of indices as users wrote them, and remainders, which are kept as what they are made of."""
    named = _SERIAL.sub("", str(text))
    return _SINGLE.sub(r"\1 \2", _REMAINDER.sub(r"(\2) % \1", named)) if "//" in named else named
