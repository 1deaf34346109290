from __future__ import annotations

import functools
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from optpy import Schedule
from optpy.cli import main

ENERGY = """
import numpy as np
import optpy as op
H, W = op.dims("H W")
i, j = op.indices(H, W)
X = op.Unknown("X", (H, W), 2)
A = op.Array("A", (H, W), 2)
Mask = op.Array("Mask", (H, W), dtype=np.uint8)
w = op.params("w")
energy = op.Energy(
    fit=op.where(Mask[i, j] == 0, X[i, j] - A[i, j], 0),
    reg=[w * op.sin(X[i, j] - X[i + 1, j]), w * (X[i, j] - X[i, j - 2])],
    fixed={X: Mask[i, j] != 0},
)
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("inspect") / "energy.py"
    path.write_text(ENERGY)
    return path


@functools.cache
def inspect(file: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["inspect", str(file), *more])


def rows(run: Result, title: str) -> list[list[str]]:
    """The cells of one table, without its header."""
    assert run.exit_code == 0, run.output
    section = run.output.split(title, 1)[1].split("\n\n", 1)[0]
    return [line.split() for line in section.splitlines()[2:]]


def test_declarations(file: Path) -> None:
    found = rows(inspect(file), "Unknowns, arrays, graphs, params")
    assert found[0][:6] == ["X", "unknown", "(H,", "W,", "2)", "float64"]
    assert len(found[0]) > 6  # the condition under which it is fixed
    assert sorted(found[1:]) == [
        ["A", "array", "(H,", "W,", "2)", "float64"],
        ["Mask", "array", "(H,", "W)", "uint8"],
        ["w", "param"],
    ]
    assert rows(inspect(file, "--dtype", "float32"), "Unknowns, arrays, graphs, params")[0][5] == "float32"


def test_manifolds_are_named(tmp_path: Path) -> None:
    path = tmp_path / "energy.py"
    path.write_text(ENERGY.replace('"X", (H, W), 2', '"X", (H, W), op.UnitVector(2)'))
    found = rows(inspect(path), "Unknowns, arrays, graphs, params")
    assert found[0][:7] == ["X", "unknown", "UnitVector(2)", "(H,", "W,", "2)", "float64"]


def test_terms(file: Path) -> None:
    found = rows(inspect(file), "Terms")
    assert [row[:4] for row in found] == [[name, "H,", "W", "2"] for name in ("fit", "reg[0]", "reg[1]")]
    assert found[0][4].endswith("energy.py:11")


def test_stencils(file: Path) -> None:
    assert rows(inspect(file), "Stencils") == [
        ["fit", "X", "(0,", "0)"],
        ["A", "(0,", "0)"],
        ["Mask", "(0,", "0)"],
        ["reg[0]", "X", "(0,", "0)", "(1,", "0)"],
        ["reg[1]", "X", "(0,", "0)", "(0,", "-2)"],
    ]


def counts(table: list[list[str]], *stages: str) -> dict[tuple[str, str], list[int]]:
    """The seven counts of each row, by its name and stage."""
    name = ""
    found: dict[tuple[str, str], list[int]] = {}
    for row in table:
        for stage in stages:
            words = stage.split()
            if row[-7 - len(words) : -7] == words:
                name = row[0] if len(row) > 7 + len(words) else name
                found[name, stage] = [int(n) for n in row[-7:]]
    return found


def test_operations_before_and_after_simplification(tmp_path: Path) -> None:
    path = tmp_path / "product.py"
    path.write_text(
        "import optpy as op\nN, = op.dims('N,')\nn = op.indices(N)\n"
        "X, A = op.Unknown('X', (N,)), op.Array('A', (N,))\n"
        "energy = op.Energy(fit=A[n] * X[n] * X[n + 1] + A[n] * X[n] * X[n + 2])\n"
    )
    table = rows(inspect(path), "Operations of residuals and their partials")
    found = counts(table, "as differentiated", "factored, shared")
    # Additions and multiplications: of a x y + a x z, a y + a z, a x and a x ...
    assert found["fit", "as differentiated"][:2] == [2, (2 + 2) + (1 + 1) + 1 + 1]
    # ... against a x s, a s and a x with s = y + z.
    assert found["fit", "factored, shared"][:2] == [1, 2 + 1 + 1]
    assert found["fit", "factored, shared"][6] < found["fit", "as differentiated"][6]


def test_the_interior_takes_less_than_the_border(file: Path) -> None:
    found = counts(rows(inspect(file), "Operations for each point"), "at any point", "in the interior")
    for routine in ("cost", "evalF", "evalJTF", "applyJTJ", "modelcost"):
        assert sum(found[routine, "at any point"]) >= sum(found[routine, "in the interior"])
    assert found["applyJTJ", "at any point"][5] > found["applyJTJ", "in the interior"][5]  # bounds checks


def test_source_is_the_c_of_one_routine_alone(file: Path) -> None:
    one = inspect(file, "--source", "applyJTJ")
    assert one.exit_code == 0
    assert "applyJTJ" in one.output
    assert "Stencils" not in one.output
    every = inspect(file, "--source", "all")
    assert one.output.strip() in every.output
    assert "float" not in one.output  # float64, unless asked for otherwise
    assert "const float *" in inspect(file, "--source", "applyJTJ", "--dtype", "float32").output


def test_an_unknown_routine_names_the_known_ones(file: Path) -> None:
    run = inspect(file, "--source", "applyJ")
    assert run.exit_code == 2
    assert "applyJTJ" in run.output
    assert "evalF" in run.output


def test_fixed_conditions_read_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "fixed.py"
    path.write_text(
        "import optpy as op\nH, W = op.dims('H W')\ny, x = op.indices(H, W)\n"
        "X, Mask = op.Unknown('X', (H, W)), op.Array('Mask', (H, W), dtype='uint8')\n"
        "energy = op.Energy(fit=X[y, x] - 1, fixed={X: ~(Mask[y, x + 1] == 0)})\n"
    )
    assert "~(Mask[y, x + 1] == 0)" in inspect(path).stdout


def test_places_that_are_no_offsets_are_shown_as_indices(tmp_path: Path) -> None:
    path = tmp_path / "strided.py"
    path.write_text(
        "import optpy as op\nN, M = op.dims('N M')\ni, k = op.indices(N, M)\n"
        "X, A = op.Unknown('X', (N,)), op.Array('A', (M,))\n"
        "energy = op.Energy(fit=X[2 * k] + X[2 * k + 1] - A[k])\n"
    )
    found = rows(inspect(path), "Stencils")
    assert found[0][:2] == ["fit", "X"]
    assert "[2*k]" in found[0]


def test_a_mistake_in_the_energy_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text(ENERGY.replace("A[i, j], 0)", "A[i], 0)"))
    run = inspect(path)
    assert run.exit_code == 1
    assert run.output.startswith("Error: ")
    assert "bad.py:11" in run.output
    assert "Traceback" not in run.output


def test_graphs(tmp_path: Path) -> None:
    path = tmp_path / "mesh.py"
    path.write_text("""
import optpy as op
V, E = op.dims("V E")
X = op.Unknown("X", (V,), 3)
a, b = op.Graph("edges", E, (V, V))[op.indices(E)]
energy = op.Energy(reg=X[a] - X[b])
""")
    declared = rows(inspect(path), "Unknowns, arrays, graphs, params")
    assert ["edges", "graph", "E", "of", "(V,", "V)", "integers"] in declared
    assert [row[:2] for row in rows(inspect(path), "Terms")] == [["reg", "E"]]
    assert "edges[i0, 1]" in inspect(path, "--source", "evalF").output


WITH_FUNCS = """
import optpy as op
H, W = op.dims("H W")
i, j = op.indices(H, W)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
B, known = op.Func("B", (H, W)), op.Func("known", (H, W))
B[i, j] = op.vector(op.exp(op.sin(X[i, j]) * X[i, j + 1]), X[i, j])
known[i, j] = A[i, j] > 0
energy = op.Energy(fit=op.where(known[i, j], B[i, j] - B[i, j + 1], 0))
"""


def test_funcs(tmp_path: Path) -> None:
    path = tmp_path / "funcs.py"
    path.write_text(WITH_FUNCS)
    assert rows(inspect(path), "Unknowns, arrays, graphs, params, Funcs") == [
        ["X", "unknown", "(H,", "W)", "float64"],
        ["A", "array", "(H,", "W)", "float64"],
        ["B", "Func", "(H,", "W,", "2)", "float64"],
        ["known", "Func", "(H,", "W)", "bool"],
    ]
    lines = inspect(path, "--schedule").output.splitlines()
    (dear, reason), (known, other) = (line.split("  # ") for line in lines[:2])
    assert known == "func known: values"
    assert dear == "func B: partials"
    for text in (reason, other):
        assert text.startswith("at each point of a product with J^T J, ")
    assert "partials.B" in inspect(path, "--source", "jacobian").output


def test_the_schedule_is_printed_with_its_reasons(file: Path) -> None:
    run = inspect(file, "--schedule")
    assert run.exit_code == 0
    choices, reasons = zip(*(line.split("  # ") for line in run.output.splitlines()), strict=True)
    assert all(reasons)
    assert str(Schedule.parse(run.output)) == run.output.strip()
    assert {line.partition(" ")[0] for line in choices} <= {"residual", "term", "normal", "condition", "layout"}
    assert "layout (H, W): planar" in choices
    assert "normal J^T J: levels" in choices
    assert "Stencils" not in run.output


def test_the_schedule_and_the_source_are_those_of_the_device(file: Path) -> None:
    run = inspect(file, "--schedule", "--device", "cuda", "--dtype", "float32")
    assert run.exit_code == 0
    choices, reasons = zip(*(line.split("  # ") for line in run.output.splitlines()), strict=True)
    assert all(reasons)
    assert str(Schedule.parse(run.output)) == run.output.strip()
    assert "sweep pcg_start_0: 4" in choices
    assert not any(line.startswith("sweep") for line in inspect(file, "--schedule").output.splitlines())
    assert "OPTPY_FN void applyJTJ_0(" in inspect(file, "--source", "applyJTJ", "--device", "cuda").output
    assert "applyJTJ" in inspect(file, "--device", "cuda").output


def test_the_schedule_of_a_graph_counts_what_each_way_costs(tmp_path: Path) -> None:
    path = tmp_path / "mesh.py"
    path.write_text("""
import optpy as op
V, E = op.dims("V E")
X = op.Unknown("X", (V,), 3)
a, b = op.Graph("edges", E, (V, V))[op.indices(E)]
energy = op.Energy(reg=op.sin(X[a]) - X[b])
""")
    first, _, reason = inspect(path, "--schedule").output.splitlines()[0].partition("  # ")
    assert first == "residual reg: inline"
    assert "additions for each edge; Jp: " in reason


def test_a_schedule_is_taken_from_a_file(file: Path, tmp_path: Path) -> None:
    text = tmp_path / "schedule.txt"
    text.write_text("residual reg[0]: J  # to see it\n")
    run = inspect(file, "--schedule", "--schedule-file", str(text))
    assert "residual reg[0]: J  # to see it" in run.output.splitlines()
    text.write_text(run.output)
    assert inspect(file, "--schedule-file", str(text), "--schedule").output == run.output
    assert "jacobian_0" in inspect(file, "--source", "jacobian", "--schedule-file", str(text)).output
    wrong = tmp_path / "wrong.txt"
    for content, message in (
        (b"\nresidual rg: J", "schedule, line 2, 'residual rg: J': there is no residual 'rg'; there are: "),
        (b"residual reg[0] J", "schedule, line 1, 'residual reg[0] J': a line is as"),
        (b"\xff", "cannot be read as a text"),
    ):
        wrong.write_bytes(content)
        inspect.cache_clear()
        refused = inspect(file, "--schedule", "--schedule-file", str(wrong))
        assert refused.exit_code == 1
        assert message in refused.output
