"""The keys of kept programs, which two different programs never share."""

from __future__ import annotations

import os
import py_compile
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optpy as op
from optpy import ir
from optpy.api.pipeline import derive
from optpy.api.warm_start import program_key
from optpy.kernels.codegen.program import Program
from optpy.scheduling.given import as_schedule
from optpy.symbolic.expr import Expr, Var, make_call, var
from optpy.symbolic.operations import OPERATIONS
from optpy.symbolic.traverse import map_variables, variables
from tests.support.applications import ENERGIES
from tests.support.random_energies import random_energies
from tests.support.random_graphs import random_graph_energies
from tests.support.random_stencils import cases
from tests.support.schedules import GATHERS, by_hand
from tests.support.warm_starts import MODULE, energy_of, program_of, wave

ROOT = Path(__file__).resolve().parents[2]

N, M = op.dims("N M")
E, F = op.dims("E F")
n, k = op.indices(N, N)
X, Y = op.Unknown("X", (N,)), op.Unknown("Y", (N,))
A = op.Array("A", (N,))
R, T = op.Unknown("R", (N,), op.SO3), op.Unknown("T", (N,), op.SO2)
V = op.Array("V", (N,), 3)
w, v = op.params("w v")
edges = op.Graph("edges", E, (N, N))


def key_of(energy: op.Energy, dtype: str = "float32", given: Any = ()) -> str:
    key = program_key(energy.problem, dtype, as_schedule(given))
    assert key is not None
    return key


# -- programs that differ ----------------------------------------------------------------------------------------------


def over(size: Any, slots: Any) -> op.Energy:
    a, b = op.Graph("edges", size, slots)[op.indices(size)]
    return op.Energy(reg=op.sin(X[a]) - X[b])


def along(backwards: bool) -> op.Energy:
    a, b = edges[op.indices(E)]
    return op.Energy(reg=op.sin(X[b]) * X[a] if backwards else op.sin(X[a]) * X[b])


Z = op.Unknown("Z", (N, N))
LOOPS = [((n, k), k), ((k, n), k), ((k, k), k), ((k, k + n), k)]
"""An index of Z, and over what it is summed."""


def through(formula: Any, name: str = "B", of: int = 0) -> Any:
    """An intermediate where it is read."""
    B = op.Func(name, (N,))
    B[n] = formula
    return B[n + of]


def fits(*residuals: Any, **more: Any) -> list[op.Energy]:
    return [op.Energy(fit=r, **more) for r in residuals]


DIFFERENT: dict[str, list[op.Energy]] = {
    "coefficient": fits(*(c * X[n] - 1 for c in (2, 3, 2.1, np.nextafter(2.1, 3), -2, 0.5, 1 / 3))),
    "constant": fits(*(X[n] - c for c in (1, 2, 0.1, np.nextafter(0.1, 1)))),
    "exponent": fits(*((X[n] + 2) ** c for c in (2, 3, -1, 0.5, 1.5))),
    "function": fits(*(f(X[n]) for f in (op.sin, op.cos, op.exp, op.tanh))),
    "operands": fits(op.atan2(X[n], Y[n]), op.atan2(Y[n], X[n])),
    "offset": fits(*(X[n] - X[n + d] for d in (1, 2, -1))),
    "boundary": fits(
        X[n] - X[n + 1],
        *(op.where(op.in_bounds(n + d), X[n] - X[n + 1], c * X[n]) for d in (1, 2) for c in (0, 1)),
    ),
    "fixed": [
        op.Energy(fit=X[n] - Y[n], fixed=fixed)
        for fixed in (None, {X: A[n] < 0}, {Y: A[n] < 0}, {X: A[n] < 0, Y: A[n] < 0}, {X: A[n] < 1}, {X: A[n] < w})
    ],
    "names": [*fits(X[n] - 1, Y[n] - 1, [X[n] - 1]), op.Energy(fits=X[n] - 1)],
    "terms": [
        op.Energy(a=X[n] - 1, b=X[n] - 2),
        op.Energy(b=X[n] - 2, a=X[n] - 1),
        *fits([X[n] - 1, X[n] - 2], op.vector(X[n] - 1, X[n] - 2), op.vector(X[n] - 2, X[n] - 1)),
    ],
    "data": fits(*(X[n] - op.Array("A", (N,), dtype=d)[n] for d in (None, "float32", "float64", "uint8", "int32"))),
    "role": fits(*(X[n] - f("A", (N,))[n] for f in (op.Array, op.Unknown))),
    "param": fits(X[n] - w, X[n] - v, X[n] - op.Array("w", ())[()], X[n] - op.Unknown("w", ())[()]),
    "channels": fits(*(X[n] - op.Array("A", (N,), c)[n].sum() for c in (1, 2, 3))),
    "sizes": fits(*(op.Unknown("Z", (d, N))[op.indices(d, N)] - 1 for d in (M, E))),
    "stopped": fits(X[n] * X[n], op.stop_gradient(X[n]) * X[n]),
    "intermediates": fits(
        op.sin(X[n]) - A[n],
        *(through(f(X[n])) - A[n] for f in (op.sin, op.cos)),
        *(through(op.sin(X[n]), of=d) - A[n] for d in (1, -1)),
        through(op.sin(X[n]), "C") - A[n],
        through(op.sin(X[n]) - A[n]),
        through(through(op.sin(X[n])) - A[n], "C"),
        through(through(op.cos(X[n])) - A[n], "C"),
    ),
    "intermediates of data": fits(*(X[n] * through(f(A[n])) for f in (op.sin, op.cos))),
    "intermediate conditions": fits(*(op.where(through(c), X[n], 0) for c in (A[n] > 0, A[n] < 0, A[n] > w))),
    "sums": fits(
        *(op.sum(f(X[n]), over=n) - 1 for f in (op.sin, op.cos)),
        op.sum(X[n] * X[n], over=n) - 1,
        op.sum(X[n], over=n) - 1,
        op.sum(X[n] * A[k], over=(n, k)) - 1,
        op.sum(X[n] * A[k], over=(k, n)) - 1,
        op.sum(X[n] * op.sum(A[k], over=k), over=n) - 1,
    ),
    "loops of sums": fits(*(op.sum(Z[index], over=over) - Y[n] for index, over in LOOPS)),
    "robust": fits(*(op.robust(X[n] - 1, f, scale=c) for f in ("huber", "cauchy") for c in (1, 2, w))),
    "slots": [along(False), along(True)],
    "graphs": [over(E, (N, N)), over(F, (N, N))],
    "manifolds": fits(
        R[n] @ V[n] - V[n],
        R[n] @ (R[n] @ V[n]) - V[n],
        op.stop_gradient(R[n] @ V[n]) - R[n] @ (R[n] @ V[n]),
        T[n] @ op.vector(A[n], 1),
        op.Unknown("R", (N,), op.UnitVector(3))[n] - V[n],
        op.Unknown("R", (N,), 3)[n] - V[n],
    ),
    # A reason names the user's index: the distance of the two is not the same everywhere.
    "indices": fits(X[n] * X[N - 1 - n], X[k] * X[N - 1 - k]),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_programs_that_differ_have_keys_that_differ(what: str) -> None:
    keys = [key_of(e) for e in DIFFERENT[what]]
    programs = [program_of(e) for e in DIFFERENT[what]]
    assert any(p != programs[0] for p in programs)
    for key, program in zip(keys, programs, strict=True):
        assert all(other == program for other, its in zip(programs, keys, strict=True) if its == key)


def test_leaves_of_one_text_are_told_apart() -> None:
    """An unknown and its tangent have one name, and expressions of them one ``digest``."""
    problem = op.Energy(fit=R[n] @ V[n] - V[n]).problem
    (residual,), (stored,) = problem.residuals, problem.unknowns

    def leaf(field: ir.Field, channel: int) -> Expr:
        return var(ir.Access(field, ir.point(residual.domain), channel))

    def linearised(e: Expr) -> ir.Problem:
        return replace(problem, residuals=(replace(residual, linearised=(e,)),))

    moved = ir.tangent(stored)
    one, two = (make_call(OPERATIONS["atan2"], (leaf(a, 0), leaf(b, 1))) for a, b in ((stored, moved), (moved, stored)))
    assert one.digest == two.digest
    assert program_key(linearised(one), "float32") != program_key(linearised(two), "float32")


def test_no_two_energies_of_the_problems_have_one_key() -> None:
    keys = [key_of(e, dtype) for e in ENERGIES.values() for dtype in ("float32", "float64")]
    assert len(set(keys)) == 2 * len(set(ENERGIES.values()))


def test_schedules_are_in_the_key() -> None:
    energy = along(False)
    decided = derive(energy.problem, "float32").schedule
    ways = [(), *(by_hand(energy, way) for way in GATHERS), decided, replace(decided, layouts=())]
    assert len({key_of(energy, given=way) for way in ways}) == len(ways)
    values = derive(wave().problem, "float32").schedule
    assert values.values
    assert key_of(wave(), given=values) != key_of(wave(), given=replace(values, values=values.values[1:]))


def test_schedules_of_intermediates_are_in_the_key() -> None:
    energy = op.Energy(fit=through(op.sin(X[n])) - A[n])
    ways = [(), *([ir.FuncSchedule("B", storage, kept)] for storage in ir.FuncStorage for kept in (False, True))]
    assert len({key_of(energy, given=way) for way in ways}) == len(ways)


def test_the_key_is_that_of_what_is_written_and_not_of_when() -> None:
    ask = "from optpy.api.warm_start import program_key\nprint(program_key(energy.problem, 'float32'))\n"
    before = "import optpy as op\nunused = op.indices(*op.dims('Q H W'))\n"
    command, found = [sys.executable, "-c"], set()
    for seed, module in (("1", MODULE), ("2", before + MODULE)):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([*command, module + ask], cwd=ROOT, env=environment, capture_output=True, text=True)
        found.add(done.stdout.strip())
    assert found == {key_of(energy_of(MODULE))} == {key_of(energy_of(before + MODULE))}


_KNOWN: dict[str, tuple[str, Program]] = {}
"""All programs of random energies so far, by their keys, with the energy in words."""


def check_key(problem: ir.Problem, dtype: str = "float32") -> None:
    """No other problem of this run has the same key and another program."""
    key = program_key(problem, dtype)
    assert key is not None
    found = derive(problem, dtype).listing.program
    words, before = _KNOWN.setdefault(key, (repr(problem), found))
    assert found == before, f"{words}\nand\n{problem!r}\nhave the key {key}"


@st.composite
def altered(draw: st.DrawFn, problem: ir.Problem) -> ir.Problem:
    """The problem with one leaf of one residual read elsewhere, or with other guards, or with a field changed."""
    number = draw(st.integers(0, len(problem.residuals) - 1))
    residual = problem.residuals[number]
    leaves = [x for x in variables([*residual.components, *residual.linearised]) if isinstance(x.key, ir.Access)]
    leaf = draw(st.sampled_from(leaves))
    key = leaf.key
    at = [
        tuple(a + d if n == m else a for n, a in enumerate(key.index)) for m in range(len(key.index)) for d in (1, -1)
    ]
    others = [replace(key, index=index) for index in at]
    others += [replace(key, channel=c) for c in range(key.field.channels) if c != key.channel]
    if not others:
        return problem
    other = var(draw(st.sampled_from(others)))

    def changed(x: Var) -> Any:
        return other if x is leaf else x

    new = replace(
        residual,
        components=tuple(map_variables(residual.components, changed)),
        linearised=tuple(map_variables(residual.linearised, changed)),
    )
    return replace(problem, residuals=(*problem.residuals[:number], new, *problem.residuals[number + 1 :]))


def problems() -> st.SearchStrategy[ir.Problem]:
    stencils = cases().map(lambda case: case.energy.problem)
    energies = random_energies().map(lambda random: random.energy.problem)
    graphs = random_graph_energies().map(lambda random: random.energy.problem)
    return st.one_of(stencils, energies, graphs)


@settings(max_examples=3)
@given(st.data())
def test_random_programs_that_differ_have_keys_that_differ(data: st.DataObject) -> None:
    check_random(data)


@pytest.mark.deep
@settings(max_examples=1000)
@given(st.data())
def test_many_random_programs_that_differ_have_keys_that_differ(data: st.DataObject) -> None:
    check_random(data)


def check_random(data: st.DataObject) -> None:
    problem = data.draw(problems())
    check_key(problem, data.draw(st.sampled_from(["float32", "float64"])))
    check_key(data.draw(altered(problem)))


@dataclass(frozen=True)
class OfTheUser(ir.ManifoldShape):
    """A manifold that is not optpy's."""


def test_what_is_not_of_optpy_has_no_key(root: Path) -> None:
    problem = op.Energy(fit=X[n] - 1).problem
    field = replace(problem.unknowns[0], manifold=OfTheUser("line", 1, 1))
    assert program_key(replace(problem, unknowns=(field,)), "float32") is None


# -- optpy's own code --------------------------------------------------------------------------------------------------

ASKS = """
import sys
from pathlib import Path
import optpy as op
from optpy.api.warm_start import program_key
N = op.Dim("N")
problem = op.Energy(fit=op.Unknown("X", (N,))[op.indices(N)] - 1).problem
print(program_key(problem, "float32"))
file = Path(op.__file__).parent / sys.argv[1]
file.write_text(file.read_text() + chr(10))
print(program_key(problem, "float32"))
"""


def test_other_code_has_other_keys(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "optpy", tmp_path / "optpy", ignore=shutil.ignore_patterns("__pycache__"))

    def asked(edited: str) -> list[str]:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-c", ASKS, edited], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    first, after = asked("kernels/codegen/body.py")
    assert after == "None"  # this process has loaded what the file was before
    second, _ = asked("kernels/c/loops.h")
    third, _ = asked("symbolic/factor.py")
    assert len({first, second, third, "None"}) == 4


def test_bytecode_without_sources_has_no_fingerprint(tmp_path: Path) -> None:
    (tmp_path / "run.h").write_text("")
    asked = [sys.executable, "-c", "import own_code; print(own_code.fingerprint())"]

    def fingerprint() -> str:
        return subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    shutil.copy(ROOT / "optpy" / "own_code.py", tmp_path)
    assert len(fingerprint()) == 64
    py_compile.compile(str(tmp_path / "own_code.py"), str(tmp_path / "own_code.pyc"))
    (tmp_path / "own_code.py").unlink()
    assert fingerprint() == "None"
