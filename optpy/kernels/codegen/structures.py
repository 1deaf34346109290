"""Structures and enumerations that native code and Python share: declared once, as C, for C, CUDA and ctypes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator, Mapping, Sequence
from ctypes import POINTER, c_double, c_int, c_int32, c_int64, c_uint, c_uint64, c_void_p
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, final

from optpy.errors import InternalError

_SCALARS: Mapping[str, Any] = {
    "int": c_int,
    "unsigned": c_uint,
    "int32_t": c_int32,
    "int64_t": c_int64,
    "uint64_t": c_uint64,
    "double": c_double,
    "atomic_int": c_int,
}
_TABLE = re.compile(r"\(\*(\w+)\)\[\d+\]")
"""A pointer to rows of numbers."""
_FUNCTION = re.compile(r"\(\*(\w+)\)\(")
_NAME = re.compile(r"(\w+)(?:\[(\d+)\])?")


@final
@dataclass(frozen=True, slots=True)
class Structure:
    """One structure.

    Attributes:
        name: in C.
        members: their declarations in C, with comments.
        classes: of structures that stand in it, or that it points at, by their names in C. To all else, but to int, a
            pointer is an address.
    """

    name: str
    members: str
    classes: Mapping[str, type[ctypes.Structure]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The declaration in C and CUDA."""
        return f"typedef struct {self.name} {{{self.members.rstrip()}\n}} {self.name};"

    @property
    def fields(self) -> list[tuple[str, Any]]:
        """The members for ctypes."""
        return list(self._fields())

    def _fields(self) -> Iterator[tuple[str, Any]]:
        code = re.sub(r"/\*.*?\*/", "", self.members, flags=re.DOTALL)
        for declaration in filter(None, (" ".join(part.split()) for part in code.split(";"))):
            function = _FUNCTION.search(declaration)
            if function:
                yield function[1], c_void_p
                continue
            plain = declaration.removeprefix("const ").removeprefix("struct ")
            kind, _, declarators = plain.partition(" ")
            for declarator in declarators.split(","):
                yield self._field(kind, declarator.strip())

    def _field(self, kind: str, declarator: str) -> tuple[str, Any]:
        table = _TABLE.fullmatch(declarator)
        if table:
            return table[1], POINTER(_SCALARS[kind])
        pointed = declarator.count("*")
        name = _NAME.fullmatch(declarator.replace("*", "").replace("const ", "").strip())
        if name is None:
            raise InternalError(f"the structure {self.name} has a declaration that is not understood: {declarator}")
        if not pointed and kind not in _SCALARS and kind not in self.classes:
            return name[1], c_void_p  # the type of a function, which is a pointer
        found = c_void_p if pointed > 1 else self._pointer(kind) if pointed else self._value(kind)
        return name[1], found * int(name[2]) if name[2] else found

    def _value(self, kind: str) -> Any:
        return _SCALARS.get(kind) or self.classes[kind]

    def _pointer(self, kind: str) -> Any:
        if kind in self.classes:
            return POINTER(self.classes[kind])
        return POINTER(c_int) if kind == "int" else c_void_p


def enumeration(prefix: str, members: type[IntEnum]) -> str:
    """An enumeration in C and CUDA, each member's name behind a prefix: "PCG_"."""
    names = ", ".join(f"{prefix}{member.name} = {int(member)}" for member in members)
    return f"enum {{ {names} }};"


def scalar_numbers(names: Sequence[str]) -> str:
    """The number of each run-time scalar in C and CUDA, by its name in capitals, and OPTPY_SCALARS, how many there are.

    Args:
        names: in order.
    """
    return f"enum {{ {', '.join([*map(str.upper, names), 'OPTPY_SCALARS'])} }};"
