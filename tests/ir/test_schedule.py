"""Schedules as texts and as Python's dicts: what is written is what is read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optpy as op
from optpy.ir import (
    ChannelOrder,
    ConditionalWork,
    Extent,
    FuncSchedule,
    FuncStorage,
    GridLayout,
    NormalForm,
    NormalSchedule,
    ResidualSchedule,
    Schedule,
    Split,
    ValueSchedule,
    VectorSweep,
)

EVERY_KIND = Schedule(
    funcs=[FuncSchedule("B", FuncStorage.PARTIALS, True, "why")],
    residuals=[ResidualSchedule("reg[0]", True, True), ResidualSchedule("*", scatter=True)],
    normal=NormalSchedule(NormalForm.MATRIX, "since so"),
    values=[ValueSchedule("t0 = sin(X[i0 - 1]); 0 < t0*D[i0, i1].2", False)],
    splits=[Split("applyJTJ_0", False)],
    conditions=[ConditionalWork("cost_0", True, "why not")],
    layouts=[GridLayout((Extent("H"), Extent("W")), False), GridLayout((Extent("V"),), True, True)],
    orders=[ChannelOrder("J.r", (0, 2, 1))],
    sweeps=[VectorSweep("step_0", 4)],
)

TEXT = """\
func B: partials, cost  # why
residual reg[0]: J, Jp
residual *: scatter
normal J^T J: matrix  # since so
value t0 = sin(X[i0 - 1]); 0 < t0*D[i0, i1].2: recomputed
split applyJTJ_0: together
condition cost_0: branch  # why not
layout (H, W): planar
layout (V): interleaved, padded
order J.r: 0, 2, 1
sweep step_0: 4"""


def test_every_kind_has_a_line() -> None:
    assert str(EVERY_KIND) == TEXT
    assert Schedule.parse(TEXT) == EVERY_KIND
    assert str(Schedule.parse(TEXT)) == TEXT  # with the reasons
    assert op.Schedule is Schedule


def test_what_is_written_in_python_is_what_is_written_as_a_text() -> None:
    H, W, V = op.dims("H W V")
    B = op.Func("B", (H, W))
    written = Schedule(
        funcs={B: "partials, cost"},
        residuals={"reg[0]": ["J", "Jp"], "*": "scatter"},
        normal="matrix",
        values={"t0 = sin(X[i0 - 1]); 0 < t0*D[i0, i1].2": "recomputed"},
        splits={"applyJTJ_0": "together"},
        conditions={"cost_0": "branch"},
        layouts={("H", W): "planar", V: ("interleaved", "padded")},
        orders={"J.r": [0, 2, 1]},
        sweeps={"step_0": 4},
    )
    assert written == EVERY_KIND


def test_blank_lines_comments_and_spaces_say_nothing() -> None:
    assert Schedule.parse("") == Schedule() == Schedule.parse("\n  # only that\n")
    assert Schedule.parse("  residual  reg :J,Jp # x") == Schedule(residuals={"reg": "J, Jp"})


names = st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,5}(\[[0-9]\])?", fullmatch=True)
words = {
    "funcs": ["inline", "values", "partials", "inline, cost", "values, cost", "partials, cost"],
    "residuals": ["inline", "J", "Jp", "J, Jp", "JTJ", "J, JTJ", "scatter", "J, scatter"],
    "terms": ["merged", "separate"],
    "values": ["stored", "recomputed"],
    "splits": ["apart", "together"],
    "conditions": ["branch", "select"],
    "layouts": ["planar", "interleaved", "interleaved, padded"],
    "orders": ["0", "1, 0", "2, 0, 1"],
    "sweeps": ["1", "2", "4"],
}


@settings(max_examples=30, derandomize=True)
@given(st.fixed_dictionaries({k: st.dictionaries(names, st.sampled_from(w), max_size=3) for k, w in words.items()}))
def test_any_text_is_read_back(groups: dict[str, Any]) -> None:
    written = Schedule(**groups, normal="levels")
    assert Schedule.parse(str(written)) == written
    said = {(d.kind, d.about): d.choice for d in written.decisions if d.kind != "layout"}
    assert said.items() >= {("residual", name): choice for name, choice in groups["residuals"].items()}.items()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func B: values\nresidul r: J", "2, 'residul r: J': no decision is about a 'residul'; .* 'residual'"),
        ("quux r: J", "no decision is about a 'quux'; there are: func, residual, term, value, "),
        ("residual: J", "a line is as 'residual NAME: CHOICE', where CHOICE is inline, J, Jp"),
        ("residual r J", "a line is as 'residual NAME: CHOICE'"),
        ("residual r: K", "'K' is no choice here; there are: inline, J, Jp, JTJ, scatter"),
        ("residual r: J, J", "'J, J' is no choice"),
        ("residual r: inline, J", "'inline, J' is no choice"),
        ("residual r: Jp, scatter", "computes J p once"),
        ("residual r:", "'nothing' is no choice"),
        ("func B: inline, values", "no choice here; there are: inline, values, partials"),
        ("layout (H): planar, padded", "'planar, padded' is no choice"),
        ("order J.r: 0, 2", "the position of each channel"),
        ("order J.r: 1, 99999999999", "the position of each channel"),
        ("sweep step_0: 3", "there are: 1, 2 or 4"),
        ("normal J: matrix", r"one form of J\^T J only: write 'normal J\^T J: matrix'"),
        ("normal J^T J: matrices", "there are: levels, matrix or products"),
        ("residual r: J\n\nresidual r: Jp", "3, 'residual r: Jp': line 1 has decided that already"),
    ],
)
def test_what_no_schedule_says_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(op.OptionError, match="^schedule, line .*" + message):
        Schedule.parse(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(residuals={"r": "K"}), "'residual r: K': 'K' is no choice here"),
        (dict(residuals={"r": None}), "a choice of 'residuals' is a text"),
        (dict(sweeps={"step_0": True}), "a choice of 'sweeps' is a text"),
        (dict(residuals="J"), "'residuals' maps names to choices"),
        (dict(residuals=3), "'residuals' maps names to choices"),
        (dict(funcs=[ResidualSchedule("r")]), "'funcs' maps names to choices"),
        (dict(layouts={"V": "planar", ("V",): "interleaved"}), r"'layouts' decides twice about '\(V\)'"),
        (dict(normal="nothing"), "there are: levels, matrix or products"),
    ],
)
def test_what_python_writes_wrongly_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(op.OptionError, match=message):
        Schedule(**arguments)
