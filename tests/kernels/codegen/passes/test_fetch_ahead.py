"""Rows fetched ahead: the farthest of each array, once, and never as an access."""

from __future__ import annotations

import numpy as np
import pytest

import optpy as op
from optpy.api.pipeline import derive
from optpy.ir import loops
from tests.kernels.codegen.passes.routines import statements

D, H, W = op.dims("D H W")
k, i, j = op.indices(D, H, W)
X = op.Unknown("X", (D, H, W))
A = op.Array("A", (D, H, W))
B = op.Array("B", (W,))


def _functions(energy: op.Energy) -> dict[str, loops.Function]:
    listing = derive(energy.problem, "float32", op.Schedule(residuals={"*": "inline"})).listing
    return {f.name: f for functions in listing.loops for f in functions}


def test_the_farthest_row_of_each_array_is_fetched_once() -> None:
    functions = _functions(
        op.Energy(a=A[k, i, j] * B[j] * (X[k, i, j] - X[k - 1, i, j]), b=X[k, i, j] - X[k, i + 1, j])
    )
    for name in ("applyJTJ_0_border", "applyJTJ_0_interior"):
        fetches = statements(functions[name].body, loops.Fetch)
        found = {(str(f.operand.access), f.stored) for f in fetches}
        assert len(fetches) == len(found)
        assert found == {
            ("A[i0 + 1, i1 + later - row, ahead]", False),
            ("p.X[i0 + 1, i1 + later - row, ahead]", False),
            ("Ap.X[i0, i1 + later - row, ahead]", True),
        }


def test_each_vector_of_points_fetches_before_it_is_computed() -> None:
    functions = _functions(op.Energy(a=X[k, i, j] - X[k - 1, i, j], b=A[k, i, j] * (X[k, i, j] - X[k, i + 1, j])))
    for name, kind, high in (("applyJTJ_0_border", "narrow", "stop"), ("applyJTJ_0_interior", "independent", "high")):
        (vectors,) = (s for s in statements(functions[name].body, loops.Loop) if str(s.variable) == "ahead")
        (points,) = statements(vectors.body, loops.Loop)
        (stop,) = statements(vectors.body, loops.Let)
        assert (str(vectors.high), vectors.step, points.kind) == (high, 16, kind)
        assert (str(points.low), str(points.high)) == ("ahead", stop.name)
        assert str(stop.value) == f"min(ahead + 16, {high})"
        assert not statements(points.body, loops.Fetch)


def test_where_there_are_no_rows_or_no_neighbours_nothing_is_fetched() -> None:
    N = op.dims("N")
    n = op.indices(N)
    Y = op.Unknown("Y", (N,))
    energy = op.Energy(vector=Y[n] - Y[n + 1], volume=A[k, i, j] * X[k, i, j])
    functions = _functions(energy)
    assert not [f for f in functions.values() if statements(f.body, loops.Fetch)]


@pytest.mark.native
def test_what_is_fetched_outside_of_arrays_harms_nothing() -> None:
    energy = op.Energy(smooth=X[k, i, j] - X[k + 1, i, j + 1], fit=X[k, i, j] - A[k, i, j])
    data = dict(X=np.zeros((2, 1, 3)), A=np.arange(6.0).reshape(2, 1, 3))
    result = op.solve(energy, data)
    jacobian, target = energy.jacobian(data), np.concatenate([np.zeros(6), data["A"].ravel()])
    expected = np.linalg.lstsq(jacobian.toarray(), target, rcond=None)[0]
    assert np.allclose(result.x["X"].ravel(), expected)
