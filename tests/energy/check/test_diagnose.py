"""``energy.diagnose``: each mistake alone, and none where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.energy.check import diagnose as module
from optpy.ir import points

H, W, N = op.dims("H W N")
i, j = op.indices(H, W)
n = op.indices(N)
X = op.Unknown("X", (H, W))
V = op.Unknown("V", (N,), 2)
Y = op.Unknown("Y", (N,))
g = op.Unknown("g", ())
A = op.Array("A", (H, W))
Mask = op.Array("Mask", (H, W), dtype=np.uint8)
T = op.Array("T", (N,))
w = op.params("w")

SMOOTH = [X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1]]


@pytest.fixture(params=[1 << 16, 7], ids=["one slab", "many slabs"], autouse=True)
def _slabs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "POINTS_AT_A_TIME", request.param)


def grid(shape: tuple[int, int] = (4, 6)) -> dict[str, Any]:
    return {"X": np.random.default_rng(0).standard_normal(shape), "A": np.zeros(shape)}


def test_nothing_is_found_in_a_sound_energy() -> None:
    found = op.Energy(fit=X[i, j] - A[i, j], reg=SMOOTH).diagnose(grid())
    assert found.ok
    assert (found.columns, found.null_dimension) == (24, 0)
    assert str(found) == "nothing found"


def test_elements_that_no_residual_touches() -> None:
    energy = op.Energy(fit=op.where(Mask[i, j] == 0, X[i, j] - A[i, j], 0))
    mask = np.zeros((4, 6), np.uint8)
    mask[1, 2:5] = mask[3] = 1
    found = energy.diagnose({**grid(), "Mask": mask})
    (elements,) = found.untouched
    assert (elements.unknown, elements.channel, elements.count, elements.total) == ("X", None, 9, 24)
    assert elements.first == ((1, 2), (1, 3), (1, 4), (3, 0), (3, 1))
    assert not found.flat
    assert not found.gauges
    assert found.null_dimension == 9
    assert not found.ok
    assert "no residual touches these" in str(found)
    assert "X: 9 of 24 elements, at [1, 2], [1, 3], [1, 4], [3, 0], [3, 1], ..." in str(found)
    assert "null space of dimension 9, of 24 numbers" in str(found)


def test_the_boundary_rule_leaves_elements_untouched() -> None:
    found = op.Energy(f=X[i, j] + X[i, j + 3], fit=op.where(op.value(i) > 0, X[i, j], 0)).diagnose(
        {"X": np.ones((2, 5))}
    )
    (elements,) = found.untouched
    assert elements.first == ((0, 2),)


def test_fixed_elements_are_no_mistake() -> None:
    switched_on = Mask[i, j] == 0
    energy = op.Energy(fit=op.where(switched_on, X[i, j] - A[i, j], 0), fixed={X: ~switched_on})
    found = energy.diagnose({**grid(), "Mask": np.eye(4, 6, dtype=np.uint8)})
    assert found.ok
    assert found.columns == 20


def test_channels_that_no_residual_touches() -> None:
    found = op.Energy(f=op.where(T[n] > 0, V[n][0], 0), g=op.where(T[n] > 1, V[n][1], 0)).diagnose(
        {"V": np.ones((4, 2)), "T": [2.0, 0.5, -1.0, 0.5]}
    )
    assert [(e.channel, e.count, e.first) for e in found.untouched] == [(None, 1, ((2,),)), (1, 2, ((1,), (3,)))]
    assert found.null_dimension == 4
    assert "V, channel 1: 2 of 4 elements, at [1], [3]\n" in str(found)


def test_derivatives_that_vanish_at_the_initial_values() -> None:
    found = op.Energy(f=Y[n] ** 2 - 1, g=w * g[()] - 1).diagnose({"Y": [0.0, 1.0, 0.0], "w": 0.0, "g": 1.0})
    assert not found.untouched
    assert [(e.unknown, e.count, e.first) for e in found.flat] == [("Y", 2, ((0,), (2,))), ("g", 1, ((),))]
    assert found.null_dimension == 3
    assert "all derivatives by these are 0" in str(found)
    assert "g: 1 of 1 elements, at [()]" in str(found)


def test_two_reads_that_cancel_are_flat() -> None:
    found = op.Energy(f=Y[n] - Y[0]).diagnose({"Y": [5.0]})
    assert [e.count for e in found.flat] == [1]
    assert not found.gauges


def test_outliers_that_a_loss_forgets_are_flat() -> None:
    found = op.Energy(f=op.robust(Y[n] - T[n], "tukey", scale=0.5)).diagnose({"Y": [0.0, 0.0], "T": [0.1, 9.0]})
    assert found.flat[0].first == ((1,),)


def test_residuals_that_are_not_finite() -> None:
    energy = op.Energy(
        log=[Y[n], op.log(Y[n] - w) + T[n + 1]],
        fit=Y[n],
    )
    found = energy.diagnose({"Y": [3.0, 4.0, 0.5, 2.0, 0.25, 1.0], "T": np.arange(6.0), "w": 1.0})
    (value,) = found.non_finite  # at the last element, the boundary rule switches it off
    assert (value.residual, value.index, value.component, value.unknown) == ("log[1]", (2,), 0, None)
    assert np.isnan(value.value)
    assert (value.count, value.total) == (2, 6)
    assert {r.name: (r.index, r.value) for r in value.reads} == {
        "Y": ((2,), 0.5), "w": (None, 1.0), "T": ((3,), 3.0)
    }  # fmt: skip
    assert value.location is not None
    assert "test_diagnose.py" in str(value)
    for part in ("log[1][2, 0] is nan", "2 of 6", "Y[2] = 0.5", "w = 1", "T[3] = 3"):
        assert part in str(found)
    assert found.null_dimension is None
    assert "not computed" in str(found)


def test_derivatives_that_are_not_finite() -> None:
    energy = op.Energy(f=op.sqrt(V[n][0]) + V[n][1], fit=V[n])
    found = energy.diagnose({"V": [[1.0, 0.0], [0.0, 0.0]]})
    (slope,) = found.non_finite
    assert (slope.residual, slope.index, slope.unknown, slope.value) == ("f", (1,), "V", np.inf)
    assert (slope.count, slope.total) == (1, 4)
    assert [str(r) for r in slope.reads] == ["V[1][0] = 0", "V[1][1] = 0"]
    assert "f[1, 0] by V is inf" in str(slope)
    assert not found.gauges


def test_a_read_outside_is_told_apart() -> None:
    energy = op.Energy(f=op.where(op.in_bounds(n), op.log(Y[n] + T[n + 1]), 0))
    (value, _) = energy.diagnose({"Y": [1.0, 0.0], "T": [0.0, 1.0]}).non_finite
    assert value.value == -np.inf
    assert [(r.name, r.index, r.value) for r in sorted(value.reads, key=lambda r: r.name)] == [
        ("T", None, 0.0), ("Y", (1,), 0.0)
    ]  # fmt: skip


def test_a_constant_that_changes_nothing() -> None:
    found = op.Energy(reg=SMOOTH, fit=g[()] - 1).diagnose({"X": grid()["X"], "g": 0.0})
    assert [str(gauge) for gauge in found.gauges] == ["X"]
    assert found.null_dimension == 1
    assert not found.untouched
    assert "a constant added to all of it changes no residual" in str(found)


def test_a_constant_in_one_channel_and_a_scale_that_is_no_constant() -> None:
    u, v = V[n], V[n + 1]
    found = op.Energy(f=u[0] - v[0], g=u[1] * v[1] - 1).diagnose({"V": [[1.0, 2.0], [0.0, 0.5], [5.0, 2.0]]})
    assert [(gauge.unknown, gauge.channel) for gauge in found.gauges] == [("V", 0)]
    assert found.null_dimension == 2  # V1 may alternately be multiplied and divided, which is no shift


def test_one_fixed_element_holds_the_constant() -> None:
    energy = op.Energy(reg=SMOOTH, fixed={X: (op.value(i) == 0) & (op.value(j) == 0)})
    found = energy.diagnose({"X": grid()["X"]})
    assert found.ok
    assert (found.columns, found.null_dimension) == (23, 0)


def test_the_null_space_is_computed_for_small_problems_only(monkeypatch: pytest.MonkeyPatch) -> None:
    energy = op.Energy(reg=SMOOTH)
    monkeypatch.setattr(module, "MOST_COLUMNS", 24)
    assert energy.diagnose({"X": np.ones((4, 6))}).null_dimension == 1
    found = energy.diagnose({"X": np.ones((5, 5))})
    assert found.null_dimension is None
    assert [gauge.unknown for gauge in found.gauges] == ["X"]
    assert str(found).endswith("the null space of J was not computed")


def test_the_null_dimension_is_that_of_the_dense_jacobian() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 60))
    f = Y[n] * T[n] * g[()] - Y[0]
    energy = op.Energy(f=f, h=1e6 * (V[n][0] + 1e-3 * V[n][1]), fixed={Y: T[n] > 1})
    data = {"Y": a, "T": b, "g": 2.0, "V": rng.standard_normal((60, 2))}
    J = energy.jacobian(data).toarray()
    found = energy.diagnose(data)
    assert found.columns == 1 + 60 + 120 - np.count_nonzero(b > 1)
    assert found.null_dimension == found.columns - np.linalg.matrix_rank(J)


def test_many_rows_are_reduced_a_few_at_a_time() -> None:
    rows, columns = op.Unknown("rows", (H,)), op.Unknown("columns", (W,))
    energy = op.Energy(f=rows[i] + columns[j] - A[i, j])
    found = energy.diagnose({"rows": np.zeros(40), "columns": np.zeros(70), "A": np.zeros((40, 70))})
    assert found.null_dimension == 1  # one up, the other down
    assert not found.gauges


def test_data_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(op.DataError, match="lacks 'X'"):
        op.Energy(reg=SMOOTH).diagnose({})


def test_extreme_derivatives_do_not_break_the_null_space() -> None:
    found = op.Energy(f=w * Y[n], h=T[n] * g[()]).diagnose(
        {"Y": [1.0, 1.0], "w": 5e-324, "g": 1.0, "T": [1e308, -1e308]}
    )
    assert found.ok
