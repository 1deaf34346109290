"""From routines to a source: groups, numbers, and that the same energy always gives the same text."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.api.pipeline import derive
from optpy.errors import InternalError
from optpy.ir import VECTOR_UPDATES, Group
from optpy.kernels.codegen.dialect import c_dialect
from optpy.kernels.codegen.numbering import numbered_kernels
from optpy.kernels.codegen.program import ProgramListing
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import ONE, var
from optpy.symbolic.operations import OPERATIONS
from tests.integration.test_operators import every_function
from tests.support.warping import arap_energy

ROOT = Path(__file__).resolve().parents[3]


def program(energy: op.Energy, dtype: str = "float32") -> ProgramListing:
    return derive(energy.problem, dtype).listing


@functools.cache
def program_of(build: Callable[[], op.Energy]) -> ProgramListing:
    """Of an energy that several tests look at."""
    return program(build())


def digest(made: ProgramListing) -> str:
    return hashlib.sha256(made.source.encode()).hexdigest()


# -- the same text ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [arap_energy, every_function])
def test_an_energy_written_twice_is_the_same_text(build: Callable[[], op.Energy]) -> None:
    assert digest(program_of(build)) == digest(program(build()))


def test_the_text_does_not_depend_on_the_process() -> None:
    code = """
from tests.kernels.codegen.test_program import arap_energy, digest, every_function, program_of
print(digest(program_of(every_function)), digest(program_of(arap_energy)))
"""
    seed = "1" if os.environ.get("PYTHONHASHSEED") == "0" else "0"  # strings have other hashes than here
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{digest(program_of(every_function))} {digest(program_of(arap_energy))}\n"


def test_precisions_are_different_texts() -> None:
    single, double = ("".join(p.functions) for p in (program_of(arap_energy), program(arap_energy(), "float64")))
    assert "float *restrict" in single
    assert "double *restrict" not in single
    assert "double *restrict" in double
    assert "float *restrict" not in double


def test_array_names_do_not_change_the_work() -> None:
    """Fields are known to native code by number."""
    N = op.dims("N")
    n = op.indices(N)

    def energy(x: str, a: str) -> op.Energy:
        return op.Energy(fit=op.Unknown(x, (N,))[n] - op.Array(a, (N,))[n])

    one, two = program(energy("X", "A")), program(energy("Y", "B"))
    assert list(one.symbols.fields.values()) == list(two.symbols.fields.values())
    assert one.groups == two.groups


# -- groups ----------------------------------------------------------------------------------------------------------


def test_groups_have_one_kernel_for_each_domain_or_grid() -> None:
    p = program_of(every_function)
    energy = every_function()
    domains = {tuple(i.dim for i in r.domain) for r in energy.problem.residuals}
    grids = {f.dims for f in energy.problem.unknowns}
    for group in (Group.COST, Group.RESIDUALS, Group.MODEL_COST):
        assert len(p.groups[group]) == len(domains)
    for group in (Group.GRADIENT, Group.PRODUCT, Group.PRODUCT_DAMPED, Group.DAMPING, *map(Group.of, VECTOR_UPDATES)):
        last = [n for n in p.groups[group] if not p.kernels[n].border.prepares]  # others store what these read
        assert len(last) == len(grids)
    numbers = [n for group in p.groups.values() for n in group]
    assert sorted(numbers) == list(range(len(p.kernels)))
    names = [k.name for k in p.kernels]
    assert len(set(names)) == len(names)


def test_blocks_are_there_only_if_they_are_not_diagonal() -> None:
    N = op.dims("N")
    n = op.indices(N)
    X, A = op.Unknown("X", (N,), 2), op.Array("A", (N,), 2)
    apart = op.Energy(fit=X[n] - A[n], smooth=X[n] - X[n + 1])
    together = op.Energy(fit=X[n] - A[n], smooth=X[n][0] - X[n + 1][1], product=X[n][0] * X[n][1])
    assert Group.GRADIENT_BLOCKS not in program(apart).groups
    assert Group.GRADIENT_BLOCKS in program(together).groups


def test_only_routines_over_unknowns_skip_what_is_fixed() -> None:
    p = program_of(arap_energy)
    lists = list(p.symbols.lists)
    for group, numbers in p.groups.items():
        for n in numbers:
            assert lists[p.program.numbers.lists[n]].solved_only == ir.Group.named(group).task.over_unknowns


def test_only_stencils_on_volumes_go_through_slabs() -> None:
    D, H, W = op.dims("D H W")
    k, i, j = op.indices(D, H, W)
    X, A = op.Unknown("X", (D, H, W)), op.Array("A", (D, H, W))
    p = program(op.Energy(fit=X[k, i, j] - A[k, i, j], smooth=op.sin(X[k, i, j]) - X[k, i + 1, j]))
    along_rows = program(op.Energy(fit=X[k, i, j] - A[k, i, j], smooth=X[k, i, j] - X[k, i, j + 1]))

    def beside(made: ProgramListing, name: str) -> bool:
        (number,) = made.groups[ir.Group.named(name)]
        return list(made.symbols.lists)[made.program.numbers.lists[number]].beside

    assert beside(p, "applyJTJ")
    assert not beside(p, "direction")
    assert not beside(along_rows, "applyJTJ")
    assert not any(s.beside for s in program_of(arap_energy).symbols.lists)


def test_reductions_have_slots_of_their_own() -> None:
    p = program_of(every_function)
    taken = [
        slot
        for n, first in enumerate(p.program.numbers.reductions)
        for slot in range(first, first + len(p.routine(n).reductions))
    ]
    assert sorted(taken) == list(range(len(p.symbols.reductions)))


# -- dialects --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_dialect_spells_every_operation(dtype: str) -> None:
    written_as_operators = {"not", "less", "less_equal", "equal", "stop_gradient", "whole"}
    assert set(OPERATIONS) - written_as_operators <= set(c_dialect(dtype).functions)
    assert set(ir.DTYPES) == set(c_dialect(dtype).types)


# -- what later stages rely on ---------------------------------------------------------------------------------------

N_ = ir.Extent("N")
DOMAIN = ir.canonical_domain([N_])
FIELD = ir.Field("A", (N_,), 1, ir.REAL, ir.Role.DATA)


def access(offset: int) -> ir.Access:
    return ir.Access(FIELD, (Affine.of(DOMAIN[0]) + offset,), 0)


@pytest.mark.parametrize(
    ("routine", "message"),
    [
        (ir.Routine("r", DOMAIN, (ir.Assignment(access(1), ONE),)), "away from its own point"),
        (ir.Routine("r", DOMAIN, (ir.Assignment(access(0), ONE), ir.Assignment(access(0), ONE))), "same element twice"),
        (ir.Routine("r", (), reductions=(ir.Reduce("s", var(access(0))),)), "outside its domain"),
        (ir.Routine("r", DOMAIN, (ir.Assignment(access(0), var(ir.LocalName("x"))),)), "does not compute"),
        (ir.Routine("r", DOMAIN, reductions=(ir.Reduce("s", ONE), ir.Reduce("m", ONE, maximum=True))), "both sums and"),
    ],
)
def test_a_routine_that_breaks_the_rules_is_a_mistake_of_ours(routine: ir.Routine, message: str) -> None:
    with pytest.raises(InternalError, match=message):
        numbered_kernels({ir.Group.COST: [routine]}, ())


@pytest.mark.native
def test_dumps_show_every_stage() -> None:
    solver = op.compile(arap_energy(), device="cpu", dtype=np.float32)
    routine, loops, source = (solver.dump("applyJTJ", stage=stage) for stage in ("routine", "loops", "source"))
    assert "in_bounds" in routine
    assert "applyJTJ_0_border" in loops
    assert "for i1 in [low, high) (independent)" in loops
    assert "restrict" in source
    assert solver.source("applyJTJ") == source
    assert source in solver.source()
    with pytest.raises(op.OptionError, match="applyJTJ_damped"):
        solver.dump("applyJ")
    with pytest.raises(op.OptionError, match="loops"):
        solver.dump("applyJTJ", stage="assembly")  # type: ignore[arg-type]
    assert solver.dtype == np.float32


# -- layout ----------------------------------------------------------------------------------------------------------


def test_channels_stand_side_by_side_where_graphs_gather_them_but_not_where_multigrid_walks_along_rows() -> None:
    N, E = op.dims("N E")
    n, e = op.indices(N, E)
    X = op.Unknown("X", (N,), 2)
    a, b = op.Graph("edges", E, (N, N))[e]
    (at,) = op.Graph("where", E, N)[e]
    dims = (ir.Extent("N"),)
    assert program(op.Energy(reg=X[a] - X[b], fit=X[n])).symbols.interleaved == {dims}
    assert program(op.Energy(reg=X[n] - X[n + 1], fit=X[n])).symbols.interleaved == set()
    smooth = program(op.Energy(reg=X[n] - X[n + 1], fit=op.sin(X[at])))
    assert isinstance(smooth.program.coupling, ir.Coupling)
    assert dims not in smooth.symbols.interleaved


# -- sections ----------------------------------------------------------------------------------------------------------


def stretched() -> op.Energy:
    N, E = op.dims("N E")
    n, e = op.indices(N, E)
    X, A = op.Unknown("X", (N,), 2), op.Array("A", (N,), 2)
    a, b = op.Graph("edges", E, (N, N))[e]
    return op.Energy(fit=X[n] - A[n], length=op.norm(X[a] - X[b]) - 1)


def test_each_kernel_has_a_section_and_the_rows_of_a_matrix_the_last() -> None:
    for made in (program_of(arap_energy), program_of(stretched)):
        _, *sections = re.split(r"^#if !defined OPTPY_SECTIONS .*$", made.source, flags=re.MULTILINE)
        assert len(sections) == len(made.program.sections)
        for n, kernel in enumerate(made.kernels):
            defined = re.compile(rf"^OPTPY_KERNEL void {kernel.name}\([^;]*\{{$", re.MULTILINE)
            assert [m for m, text in enumerate(sections) if defined.search(text)] == [n]
        rows = [n for n, text in enumerate(sections) if "void optpy_add_row(" in text]
        assert rows == ([len(made.kernels)] if isinstance(made.program.normal, ir.NormalMatrix) else [])
        assert made.program.sections_of([Group.NORMAL])[-1:] == rows


def names(made: ProgramListing, damped: bool | None) -> set[str]:
    return {str(group) for group in made.program.begun_with(damped)}


def test_solves_begin_with_one_product_and_one_preconditioner() -> None:
    on_grid, on_graph = program_of(arap_energy), program_of(stretched)
    assert "pcg_start_smoothed_0" in on_grid.program.numbers.names
    found = names(on_grid, True)
    assert found >= {"cost", "step", "modelcost", "evalJTF", "damp", "start", "update", "applyJTJ_damped"}
    assert not {name for name in found if name.endswith(("_smoothed", "_block", "_assembled"))}
    assert not found & {"applyJTJ", "evalF"}
    assert names(on_grid, False) == found - {"applyJTJ_damped"} | {"applyJTJ"}
    assert names(on_grid, None) == found | {"applyJTJ"}
    found = names(on_graph, True)
    assert found >= {"cost", "step", "evalJTF_block", "damp_block", "start_block", "applyJTJ_damped"}
    assert not found & {"evalJTF", "damp", "start", "applyJTJ", "evalF", "normal", "start_assembled"}
