"""Warm starts: what is kept is what is derived, with the lines of who asks; damage is derived again."""

from __future__ import annotations

import errno
import importlib
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.api.pipeline import cpu_backend, derive
from optpy.api.warm_start import kept_program, program_key
from optpy.errors import Location
from optpy.kernels.codegen.program import Program
from tests.support.applications import ENERGIES
from tests.support.deep import but_deep
from tests.support.func_energies import ENERGIES as FUNC_ENERGIES
from tests.support.sampled_energies import ENERGIES as SAMPLED
from tests.support.warm_starts import MODULE, energy_of, program_of, wave

ROOT = Path(__file__).resolve().parents[2]

N = op.dims("N")
n = op.indices(N)
X = op.Unknown("X", (N,))
A = op.Array("A", (N,))


def never() -> Program:
    pytest.fail("derived again")


def entry(root: Path) -> Path:
    """The only program in a cache."""
    (folder,) = root.glob("program-*")
    return folder / "program.pickle"


# -- what is kept ------------------------------------------------------------------------------------------------------


def locations(value: Any, seen: set[int]) -> set[Location]:
    """Every line of a file within a record."""
    if id(value) in seen:
        return set()
    seen.add(id(value))
    if isinstance(value, Location):
        return {value}
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [x for item in value.items() for x in item]
    elif isinstance(value, tuple | list | set | frozenset):
        inner = list(value)
    elif hasattr(value, "__dataclass_fields__"):
        inner = [getattr(value, name) for name in value.__dataclass_fields__]
    return set().union(*(locations(x, seen) for x in inner))


EVERY_RUN = (
    *("image_warping", "mesh_deformation so3", "sparse_warping", "shape_from_shading inline", "bundle_adjustment"),
    *("blendshape_fitting", "shape_and_shading"),
)


@pytest.mark.parametrize(
    "name", but_deep([*ENERGIES, *FUNC_ENERGIES, *SAMPLED], (*EVERY_RUN, *FUNC_ENERGIES, *SAMPLED))
)
def test_what_is_kept_is_what_is_derived(name: str, root: Path) -> None:
    energy = ENERGIES[name] if name in ENERGIES else (FUNC_ENERGIES | SAMPLED)[name]()[0]
    problem = energy.problem
    derived = derive(problem, "float32").listing.program
    assert kept_program(problem, "float32", op.Schedule(), lambda: derived) is derived
    found = kept_program(problem, "float32", op.Schedule(), never)
    assert found == derived
    assert found is not derived
    # In the order of their numbers, too, and with the lines of this problem.
    assert list(found.symbols.fields) == list(derived.symbols.fields)
    assert list(found.groups) == list(derived.groups)
    assert locations(found, set()) <= locations([problem.fields, problem.graphs, problem.funcs], set())


def test_an_unknown_may_have_the_name_of_one_on_a_manifold_elsewhere(root: Path) -> None:
    """Their steps have one number at each point, and are written alike."""
    X, turned = op.Unknown("X", (N,)), op.Unknown("X", (N,), op.SO2)
    plain, turning = op.Energy(r=X[n] - A[n]), op.Energy(r=turned[n] @ op.vector(1, 0) - A[n])
    alive = derive(turning.problem, "float32")
    derived = derive(plain.problem, "float32").listing.program
    assert kept_program(plain.problem, "float32", op.Schedule(), lambda: derived) is derived
    assert kept_program(plain.problem, "float32", op.Schedule(), never) == derived
    assert alive.listing.program != derived


WAVE = dict(X=np.zeros((20, 30)), A=np.random.default_rng(3).uniform(-2, 2, (20, 30)))


@pytest.mark.native
def test_a_warm_start_derives_nothing_and_solves_to_the_same_bits(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = op.compile(wave(), "cpu", "float64")
    with monkeypatch.context() as patch:
        patch.setattr("optpy.api.pipeline.derive", lambda *_: pytest.fail("derived again"))
        warm = op.compile(wave(), "cpu", "float64")
        assert warm.timing.cache_hit
        found = warm.solve(WAVE)
    expected = cold.solve(WAVE)
    np.testing.assert_array_equal(found.x["X"], expected.x["X"])
    assert [r.cost for r in found.iterations] == [r.cost for r in expected.iterations]


@pytest.mark.native
def test_a_warm_solver_shows_all_stages(root: Path) -> None:
    cold, warm = (op.compile(wave(), "cpu", "float32") for _ in range(2))
    assert warm.source() == cold.source()
    assert warm.routines == cold.routines
    for name in cold.routines:
        for stage in ("routine", "loops", "source"):
            assert warm.dump(name, stage) == cold.dump(name, stage)


# -- lines of files ----------------------------------------------------------------------------------------------------

FILLS = """
import sys
sys.path[:0] = [sys.argv[1]]
from {name} import energy
import optpy.api.pipeline
import optpy as op
if sys.argv[2] == "warm":
    optpy.api.pipeline.derive = None
print(op.compile(energy, "cpu", "float32").device)
"""


@pytest.mark.native
def test_each_file_has_its_own_lines(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "upper.py").write_text(MODULE)
    (tmp_path / "lower.py").write_text("\n" * 100 + MODULE)
    fill = [sys.executable, "-c", FILLS.format(name="upper"), str(tmp_path), "cold"]
    assert subprocess.run(fill, cwd=ROOT, capture_output=True, text=True, check=True).stdout == "cpu\n"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("optpy.api.pipeline.derive", lambda *_: pytest.fail("derived again"))
    lower = importlib.import_module("lower")

    backend = cpu_backend(lower.energy.problem, "float32")
    assert locations(backend.program, set()) <= {Location(str(tmp_path / "lower.py"), n) for n in range(101, 109)}
    for field in lower.energy.problem.fields:
        assert any(found is field for found in backend.program.symbols.fields)
    solver = op.compile(lower.energy, "cpu", "float32")
    data = dict(X=np.ones((3, 4), np.float32), A=np.zeros((3, 4), np.float32))
    with pytest.raises(op.DataError, match=rf"{re.escape(str(tmp_path / 'lower.py'))}:107"):
        solver.solve(data)


# -- damage ------------------------------------------------------------------------------------------------------------


def sealed(file: Path, text: bytes) -> None:
    """Other bytes with the right digest."""
    file.write_bytes(text)
    file.with_suffix(".sha256").write_text(sha256(text).hexdigest())


def foreign(file: Path) -> None:
    """The program of another energy, whole."""
    other = op.Energy(fit=3 * X[n] - 1).problem
    kept_program(other, "float32", op.Schedule(), lambda: derive(other, "float32").listing.program)
    key = program_key(other, "float32")
    sealed(file, (file.parents[1] / str(key) / file.name).read_bytes())
    shutil.rmtree(file.parents[1] / str(key))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:1000])


def flip(file: Path) -> None:
    text = bytearray(file.read_bytes())
    text[len(text) // 2] ^= 4
    file.write_bytes(bytes(text))


def in_its_place(file: Path) -> None:
    shutil.rmtree(file.parent)
    file.parent.write_text("a file")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "cut": cut,
    "empty": lambda file: file.write_bytes(b""),
    "flipped": flip,
    "without its digest": lambda file: file.with_suffix(".sha256").unlink(),
    "gone": lambda file: file.unlink(),
    "a file in its place": in_its_place,
    "foreign": foreign,
    "cut and sealed": lambda file: sealed(file, file.read_bytes()[:1000]),
    "no pickle": lambda file: sealed(file, b"no pickle"),
    "no program": lambda file: sealed(file, pickle.dumps((file.parent.name, "no program"))),
    "no pair": lambda file: sealed(file, pickle.dumps(7)),
    "raises": lambda file: sealed(file, pickle.dumps(op.EnergyError("x")).replace(b"EnergyError", b"EnergyErrox")),
    "numbers of nothing": lambda file: sealed(file, b"\x80\x05K\x63Q."),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_derived_again(what: str, root: Path) -> None:
    problem = op.Energy(fit=2 * X[n] - A[n]).problem
    derived = derive(problem, "float32").listing.program
    kept_program(problem, "float32", op.Schedule(), lambda: derived)
    DAMAGE[what](entry(root))
    assert kept_program(problem, "float32", op.Schedule(), lambda: derived) is derived
    assert kept_program(problem, "float32", op.Schedule(), never) == derived  # mended


def test_a_full_disk_is_no_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = op.Energy(fit=2 * X[n] - A[n]).problem
    derived = derive(problem, "float32").listing.program

    def write_bytes(path: Path, text: bytes) -> int:
        with path.open("wb") as file:
            file.write(text[:1000])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_bytes)
        for _ in range(2):
            assert kept_program(problem, "float32", op.Schedule(), lambda: derived) is derived
    assert not list(root.glob("tmp.*")) + list(root.glob("program-*"))
    assert kept_program(problem, "float32", op.Schedule(), lambda: derived) is derived
    assert kept_program(problem, "float32", op.Schedule(), never) == derived


def test_a_folder_that_others_can_write_to_is_neither_read_nor_written(root: Path) -> None:
    problem = op.Energy(fit=2 * X[n] - A[n]).problem
    derived = derive(problem, "float32").listing.program
    kept_program(problem, "float32", op.Schedule(), lambda: derived)
    root.chmod(0o777)
    assert kept_program(problem, "float32", op.Schedule(), lambda: derived) is derived


# -- many processes ----------------------------------------------------------------------------------------------------

KEEPS = """
import sys, time
from pathlib import Path
from optpy.api.pipeline import derive
from optpy.api.warm_start import kept_program
program = derive(energy.problem, "float32").listing.program
def derived():
    Path(sys.argv[1], sys.argv[2]).touch()
    while len([*Path(sys.argv[1]).iterdir()]) < 2:
        time.sleep(0.001)
    return program
print(kept_program(energy.problem, "float32", op.Schedule(), derived) is program)
"""


def test_two_processes_that_derive_at_once(root: Path, tmp_path: Path) -> None:
    meet = tmp_path / "meet"
    meet.mkdir()
    command = [sys.executable, "-c", MODULE + KEEPS, str(meet)]
    both = [subprocess.Popen([*command, name], cwd=ROOT, stdout=subprocess.PIPE, text=True) for name in ("one", "two")]
    assert [process.communicate(timeout=120)[0] for process in both] == ["True\n", "True\n"]
    energy = energy_of(MODULE)
    assert kept_program(energy.problem, "float32", op.Schedule(), never) == program_of(energy)
    assert sorted(f.name for f in entry(root).parent.iterdir()) == ["program.pickle", "program.sha256"]
    assert not list(root.glob("tmp.*"))
