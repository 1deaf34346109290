"""Files of arrays, good, broken, and made to break what reads them."""

from __future__ import annotations

import io
import os
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from numpy.lib import format as npy
from numpy.typing import NDArray

from optpy.cli import array_file
from optpy.cli.array_file import read_data, write_arrays


def test_data_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no")
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", A=np.array([{}], dtype=object))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("letter.txt", "no")
    for name, message in (
        ("text.npz", r"no \.npz file of arrays: such files are written by np\.savez"),
        ("one.npy", "without a name"),
        ("objects.npz", "'A' are Python objects"),
        ("other.zip", "'letter.txt' is no array"),
    ):
        with pytest.raises(click.ClickException, match=message) as caught:
            read_data(tmp_path / name)
        assert "pickle" not in str(caught.value)


def test_numbers_come_as_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", w=2.5, A=np.ones(3))
    data = read_data(tmp_path / "data.npz")
    assert data["w"] == 2.5
    assert isinstance(data["w"], float)
    assert data["A"].shape == (3,)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_whatever_numpy_writes_of_numbers_is_read(tmp_path: Path, save: Callable[..., None]) -> None:
    values = np.arange(6.0).reshape(2, 3)
    arrays: dict[str, NDArray[Any]] = {
        "plain": values,
        "fortran": np.asfortranarray(values),
        "big_endian": values.astype(">f8"),
        "little_endian": values.astype("<i4"),
        "empty": np.zeros((0, 5)),
        "bool": values > 2,
        "uint8": values.astype(np.uint8),
        "zeros": np.zeros(100_000),  # as compressed as can be
    }
    save(tmp_path / "data.npz", **arrays)
    data = read_data(tmp_path / "data.npz")
    assert list(data) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(data[name], array)


def test_any_name_can_be_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    arrays = {"file": np.arange(3.0), "allow_pickle": np.eye(2, dtype=np.float32)}
    write_arrays(tmp_path / "result", arrays)
    assert os.listdir(tmp_path) == ["result"]
    with np.load(tmp_path / "result") as archive:
        assert set(archive.files) == {"file", "allow_pickle"}
        np.testing.assert_array_equal(archive["file"], [0, 1, 2])
        assert archive["allow_pickle"].dtype == np.float32


# -- hostile files ---------------------------------------------------------------------------------------------------


def array_with_header(header: str, version: tuple[int, int] = (1, 0), content: bytes = b"") -> bytes:
    size = struct.pack("<H" if version == (1, 0) else "<I", len(header))
    return npy.magic(*version) + size + header.encode("latin1") + content


def saying(shape: str, descr: str = "'<f8'", order: str = "False") -> bytes:
    return array_with_header(f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n", content=bytes(80))


def good() -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.arange(1000.0))
    return buffer.getvalue()


MEMBERS: dict[str, tuple[bytes, str]] = {
    "2^60 elements": (saying("(1152921504606846976,)"), "no whole array"),
    "a product past 2^64": (saying("(4294967296, 4294967296)"), "no whole array"),
    "a dimension past 2^64": (saying("(36893488147419103232,)"), "no whole array"),
    "past 2^64 and nothing": (saying("(36893488147419103232, 0)"), "no whole array"),
    "a negative dimension": (saying("(-10,)"), r"shape is \(-10,\)"),
    "two negative dimensions": (saying("(-2, -5)"), r"shape is \(-2, -5\)"),
    "too much": (saying("(3,)"), "24 bytes of shape .*80 there"),
    "too little": (saying("(30,)"), "240 bytes of shape .*80 there"),
    "objects": (saying("(10,)", "'|O'"), "Python objects"),
    "texts": (saying("(10,)", "'<U2'"), "no numbers"),
    "bytes": (saying("(1,)", "'|V80'"), "no numbers"),
    "dates": (saying("(10,)", "'<M8[s]'"), "no numbers"),
    "records": (saying("(5,)", "[('x', '<f8'), ('y', '<f8')]"), "no numbers"),
    "a record of giants": (saying("(1,)", "[('x', '<f8', (1000000000,))]"), "'A'"),
    "a shape that is no tuple": (saying("10"), "does not begin as an array does"),
    "a shape of fractions": (saying("(2.5,)"), "does not begin as an array does"),
    "an unknown dtype": (saying("(10,)", "'no'"), "does not begin as an array does"),
    "a call": (saying("__import__('os').system('touch ran')"), "does not begin as an array does"),
    "no dictionary": (array_with_header("[1, 2]"), "does not begin as an array does"),
    "garbage": (array_with_header("{'descr': \x00\xff((("), "does not begin as an array does"),
    "brackets": (array_with_header("(" * 9000), "does not begin as an array does"),
    "minuses": (array_with_header("-" * 9000 + "1"), "does not begin as an array does"),
    "a long header": (array_with_header(" " * 60_000), "does not begin as an array does"),
    "an endless header": (npy.magic(2, 0) + b"\xff\xff\xff\xff" + b" " * 100_000, "does not begin as an array does"),
    "another version": (npy.magic(9, 0) + bytes(100), "does not begin as an array does"),
    "a half header": (good()[:40], "does not begin as an array does"),
    "nothing": (b"", "does not begin as an array does"),
    "no array": (b"hello", "does not begin as an array does"),
}  # fmt: skip


def refusal(path: Path, message: str) -> None:
    """One line, in little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(click.ClickException, match=message) as caught:
            read_data(path)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("what", MEMBERS)
def test_a_hostile_member_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, method: int) -> None:
    monkeypatch.chdir(tmp_path)
    content, message = MEMBERS[what]
    with zipfile.ZipFile("data.npz", "w", method) as archive:
        archive.writestr("A.npy", content)
    refusal(tmp_path / "data.npz", message)
    assert os.listdir(tmp_path) == ["data.npz"]


def archive_of(path: Path, **members: bytes) -> bytearray:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return bytearray(path.read_bytes())


def test_every_cut_and_many_changes_of_a_file_are_one_line_or_read(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    whole = bytes(archive_of(path, A=saying("(10,)"), w=saying("(2, 5)")))
    rng = np.random.default_rng(0)
    broken = [whole[:n] for n in range(0, len(whole), 7)]
    for _ in range(300):
        changed = bytearray(whole)
        for at in rng.integers(len(whole), size=3):
            changed[at] = rng.integers(256)
        broken.append(bytes(changed))
    messages = [error.message for content in broken if (error := error_of(path, content)) is not None]
    assert len(messages) > 200
    assert not any("\n" in message for message in messages)


def error_of(path: Path, content: bytes) -> click.ClickException | None:
    path.write_bytes(content)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of headers as Python 2 wrote them
            read_data(path)
    except click.ClickException as error:
        return error
    return None


def test_sizes_that_an_archive_only_claims_take_no_memory(tmp_path: Path) -> None:
    """A gibibyte in the archive's list and in the array's header, and a hundred bytes there."""
    path = tmp_path / "data.npz"
    content = archive_of(path, A=saying("(134217728,)"))
    entry = content.rindex(b"PK\x01\x02")
    claimed = 2**30 + len(saying("(134217728,)")) - 80
    for stored in (claimed, len(saying("(134217728,)"))):  # as large as it says; or compressed to what is there
        struct.pack_into("<II", content, entry + 20, stored, claimed)
        path.write_bytes(content)
        refusal(path, "'A.npy' says that it is larger than it can be")


def test_what_does_not_fit_into_memory_is_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "data.npz", A=np.zeros(2_000_000), B=np.zeros(2_000_000))
    monkeypatch.setattr(array_file, "machine_memory", lambda: 20_000_000)
    refusal(tmp_path / "data.npz", "its arrays take 0.0 GiB, and this machine has 0.0")


def test_a_member_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("A.npy", good())
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("A.npy", good())
    refusal(tmp_path / "data.npz", r"'A\.npy' is there 2 times")


def test_folders_and_other_compressions_are_refused(tmp_path: Path) -> None:
    for name, method, message in (
        ("folder/", zipfile.ZIP_STORED, "'folder/' is no array"),
        (".npy", zipfile.ZIP_STORED, r"'\.npy' is no array"),
        ("A.npy", zipfile.ZIP_BZIP2, "compressed as NumPy does not"),
        ("A.npy", zipfile.ZIP_LZMA, "compressed as NumPy does not"),
    ):
        with zipfile.ZipFile(tmp_path / "data.npz", "w", method) as archive:
            archive.writestr(name, good() if name.endswith("y") else b"")
        refusal(tmp_path / "data.npz", message)


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    content = archive_of(tmp_path / "data.npz", A=good())
    for at, flags in ((content.rindex(b"PK\x01\x02"), 8), (0, 6)):
        content[at + flags] |= 1
    (tmp_path / "data.npz").write_bytes(content)
    refusal(tmp_path / "data.npz", "encrypted")


def test_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    content = archive_of(tmp_path / "data.npz", A=good())
    content[4000] ^= 1
    (tmp_path / "data.npz").write_bytes(content)
    refusal(tmp_path / "data.npz", "damaged: Bad CRC-32")


def test_pipes_and_devices_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        refusal(path, "a device, a pipe or a socket")
