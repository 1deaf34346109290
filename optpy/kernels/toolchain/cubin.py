"""Resources of the kernels in a compiled image: registers, local and shared memory, the size of the argument.

A cubin is an ELF file. Attributes of kernels are records in its sections ``.nv.info`` (of the whole file; they name
their kernel by its symbol) and ``.nv.info.KERNEL``. NVIDIA's manual on the CUDA binary utilities lists them without
their numbers; those here were compared with what ``ptxas -v`` prints, for the files of CUDA 12 and of CUDA 13.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_PARAMETER_SIZE = 0x19
_REGISTER_COUNT = 0x2F

_ELF = b"\x7fELF\x02\x01\x01"
_MACHINE_CUDA = 190
_SYMBOL_TABLE = 2
_FUNCTION = 2
_IS_KERNEL = 0x10
"""A bit in the field "other" of symbols; functions that kernels call do not have it."""
_RESERVED_SHARED = 1024
"""Bytes at the beginning of every block's shared memory that CUDA itself uses, counted in the section since sm_90."""


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Of one kernel.

    Attributes:
        registers: of each thread.
        local_bytes: of each thread: registers that were spilled, arrays that are indexed at run time, the stack.
        shared_bytes: of each block, as declared in the source.
        parameter_bytes: all arguments together.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    parameter_bytes: int


def read_cubin(image: bytes) -> dict[str, KernelResources]:
    """The kernels in a cubin by name.

    Raises:
        ValueError: it is no cubin, or it is damaged.
    """
    try:
        return _Cubin(image).kernels()
    except (struct.error, IndexError, KeyError, OverflowError, UnicodeDecodeError) as error:
        raise ValueError(f"the cubin is damaged: {error}") from error


def read_ptx_parameters(text: str) -> dict[str, int]:
    """The kernels in a PTX text that have one structure as their argument: its size in bytes."""
    entry = re.compile(r"\.entry\s+([\w$]+)\s*\(\s*\.param\s+\.align\s+\d+\s+\.b8\s+[\w$]+\[(\d+)\]\s*\)")
    return {name: int(size) for name, size in entry.findall(text)}


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size: int
    link: int


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    is_kernel: bool


class _Cubin:
    def __init__(self, image: bytes) -> None:
        self.image = image
        if image[: len(_ELF)] != _ELF or self._unpack("<H", 18) != (_MACHINE_CUDA,):
            raise ValueError("not a cubin")
        (flags,) = self._unpack("<I", 48)
        # The architecture moved within the flags with the version of the format.
        (abi,) = self._unpack("<B", 8)
        self.architecture = flags >> 8 & 0xFF if abi >= 8 else flags & 0xFF
        self.sections = self._read_sections()
        self.by_name = {section.name: section for section in self.sections}

    def kernels(self) -> dict[str, KernelResources]:
        symbols = self._read_symbols()
        of_file: dict[int, dict[int, int]] = {}  # symbol, attribute: value
        for attribute, payload in self._attributes(".nv.info"):
            if attribute in (_FRAME_SIZE, _MIN_STACK_SIZE, _REGISTER_COUNT):
                symbol, value = struct.unpack("<II", payload)
                of_file.setdefault(symbol, {})[attribute] = value
        return {
            symbol.name: self._kernel(symbol.name, of_file[number])
            for number, symbol in enumerate(symbols)
            if symbol.is_kernel
        }

    def _kernel(self, name: str, of_file: dict[int, int]) -> KernelResources:
        parameter_bytes = 0  # there is no record without arguments
        for attribute, payload in self._attributes(f".nv.info.{name}"):
            if attribute == _PARAMETER_SIZE:
                (parameter_bytes,) = struct.unpack("<H", payload)
        shared = self.by_name.get(f".nv.shared.{name}")
        reserved = _RESERVED_SHARED if self.architecture >= 90 else 0
        return KernelResources(
            registers=of_file[_REGISTER_COUNT],
            # The stack is its own frame and those of the functions that it calls.
            local_bytes=max(of_file[_FRAME_SIZE], of_file.get(_MIN_STACK_SIZE, 0)),
            shared_bytes=max(0, shared.size - reserved) if shared is not None else 0,
            parameter_bytes=parameter_bytes,
        )

    def _attributes(self, section_name: str) -> Iterator[tuple[int, bytes]]:
        section = self.by_name.get(section_name)
        if section is None:
            return
        at, end = section.offset, section.offset + section.size
        while at < end:
            form, attribute = self._unpack("<BB", at)
            at += 2
            if form == 4:  # a size and as many bytes; all other forms are two bytes
                (size,) = self._unpack("<H", at)
                at += 2
            else:
                size = 2
            yield attribute, self.image[at : at + size]
            at += size

    def _read_sections(self) -> list[_Section]:
        (start,) = self._unpack("<Q", 40)
        size, count, names = self._unpack("<HHH", 58)
        headers = [self._unpack("<IIQQQQI", start + size * k) for k in range(count)]
        return [
            _Section(self._text(headers[names][4] + name), kind, offset, length, link)
            for name, kind, _, _, offset, length, link in headers
        ]

    def _read_symbols(self) -> list[_Symbol]:
        found = []
        for table in self.sections:
            if table.kind == _SYMBOL_TABLE:
                names = self.sections[table.link].offset
                for at in range(table.offset, table.offset + table.size, 24):
                    name, info, other = self._unpack("<IBB", at)
                    found.append(
                        _Symbol(self._text(names + name), info & 0xF == _FUNCTION and bool(other & _IS_KERNEL))
                    )
        return found

    def _unpack(self, layout: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(layout, self.image, at)

    def _text(self, at: int) -> str:
        end = self.image.find(b"\0", at)
        if end < 0:
            raise IndexError("a name without end")
        return self.image[at:end].decode()
