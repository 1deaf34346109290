"""Arrays by name in .npz files: whatever is in a file that is read, it is arrays of numbers or one clear error."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import click
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from optpy.cli.output_file import whole_file

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The ways in which NumPy stores: as it is, or compressed."""
_MOST_COMPRESSED = 1032
"""Bytes that a byte of deflate can stand for."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
"""By version; (3, 0) is for structured arrays with names in Unicode."""

_LONGEST_HEADER = 16 * 1024


def read_data(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file by name; arrays without axes as numbers.

    Nothing is taken into memory before it is known that the file can hold as much as it says, and memory, too.

    Raises:
        click.ClickException: it is no .npz file, or a broken one, or holds other things than arrays of numbers.
    """
    try:
        arrays = dict(_arrays(path))
    except _Refusal as refusal:
        raise click.ClickException(f"{path} is no .npz file of arrays: {refusal}") from refusal
    except MemoryError as error:
        raise click.ClickException(f"there is no memory for the arrays of {path}: {error}") from error
    except Exception as error:  # whatever zipfile and NumPy meet in a file that is broken
        reason = " ".join(str(error).split()) or type(error).__name__
        raise click.ClickException(f"{path} is no .npz file of arrays, or is damaged: {reason}") from error
    return {name: array.item() if array.ndim == 0 else array for name, array in arrays.items()}


class _Refusal(Exception):
    """The reason why a file is not taken."""


def _arrays(path: Path) -> Iterator[tuple[str, NDArray[Any]]]:
    if not path.is_file():
        raise _Refusal("it is a device, a pipe or a socket; an archive is read from both ends")
    with path.open("rb") as file:
        if file.read(len(npy.MAGIC_PREFIX)) == npy.MAGIC_PREFIX:
            raise _Refusal("it holds one array without a name, as np.save writes it; use np.savez")
    if not zipfile.is_zipfile(path):
        raise _Refusal("such files are written by np.savez(file, X=..., A=...); this is none, or not all of it")
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_sizes(members, path.stat().st_size)
        for member in members:
            name = _name(member)
            with archive.open(member) as stream:
                _check_header(stream, member, name)
            with archive.open(member) as stream:
                yield name, npy.read_array(stream, allow_pickle=False)


def _check_sizes(members: list[zipfile.ZipInfo], size: int) -> None:
    """Checks the members that an archive lists: each is there once, and all together they fit into memory."""
    for name, times in Counter(member.filename for member in members).items():
        if times > 1:
            raise _Refusal(f"its member {name!r} is there {times} times")
    for member in members:
        if member.compress_type not in _METHODS or member.flag_bits & 1:
            raise _Refusal(f"its member {member.filename!r} is encrypted, or compressed as NumPy does not compress")
        if member.file_size > _MOST_COMPRESSED * member.compress_size or member.compress_size > size:
            raise _Refusal(f"its member {member.filename!r} says that it is larger than it can be")
    total, memory = sum(member.file_size for member in members), machine_memory()
    if total > memory:
        raise _Refusal(f"its arrays take {total / 2**30:.1f} GiB, and this machine has {memory / 2**30:.1f}")


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _name(member: zipfile.ZipInfo) -> str:
    if not member.filename.endswith(".npy") or member.filename == ".npy":
        raise _Refusal(f"its member {member.filename!r} is no array")
    return member.filename.removesuffix(".npy")


def _check_header(stream: IO[bytes], member: zipfile.ZipInfo, name: str) -> None:
    """Numbers, of a shape that is as large as what is there."""
    beginning = io.BytesIO(stream.read(_LONGEST_HEADER))  # one that says it is longer does not end in it
    try:
        version = npy.read_magic(beginning)
        shape, _, dtype = _HEADERS[version](beginning)
        count = math.prod(shape)
    except Exception as error:  # it is text, and read as Python
        raise _Refusal(f"what it holds as {name!r} does not begin as an array does") from error
    if dtype.hasobject:
        raise _Refusal(f"what it holds as {name!r} are Python objects, not numbers")
    if dtype.kind not in "biufc":
        raise _Refusal(f"what it holds as {name!r} is of dtype {dtype}, and no numbers")
    if min(shape, default=0) < 0:
        raise _Refusal(f"what it holds as {name!r} says that its shape is {shape}")
    there = member.file_size - beginning.tell()
    if count * dtype.itemsize != there:
        size = count * dtype.itemsize
        raise _Refusal(f"what it holds as {name!r} is no whole array: {size} bytes of shape {shape}, and {there} there")


def write_arrays(path: Path, arrays: dict[str, Any]) -> None:
    """Writes an .npz file under exactly this name; a file that was there stays whole if the writing fails.

    Raises:
        click.ClickException: the folder or the disk does not take it.
    """
    try:
        # Not np.savez: it takes no array by the name of one of its own arguments, such as "file".
        with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, np.asarray(array), allow_pickle=False)
    except OSError as error:
        raise click.ClickException(str(error)) from error
