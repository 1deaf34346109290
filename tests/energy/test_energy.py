from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy import ir
from optpy.symbolic.traverse import variables
from tests.support.warping import arap_energy

H, W, K = op.dims("H W K")
i, j = op.indices(H, W)
k = op.indices(K)
X, Y = op.Unknown("X", (H, W)), op.Unknown("Y", (H, W), 2)
A, B = op.Array("A", (H, W)), op.Array("B", (H, W))
Mask = op.Array("Mask", (H, W), dtype=np.uint8)
w = op.params("w")


def test_the_energy_of_the_design() -> None:
    energy = arap_energy()
    assert energy.terms == ("fit", "reg")
    assert [r.label for r in energy.problem.residuals] == ["fit", "reg[0]", "reg[1]", "reg[2]", "reg[3]"]
    assert [u.name for u in energy.unknowns] == ["Offset", "Angle"]
    assert {f.name for f in energy.fields} == {"Offset", "Angle", "UrShape", "Constraints", "Mask"}
    assert [p.name for p in energy.params] == ["w_fit", "w_reg"]
    assert [f.name for f in energy.problem.fixed] == ["Offset", "Angle"]
    for r in energy.problem.residuals:
        assert r.domain == ir.canonical_domain([ir.Extent("H"), ir.Extent("W")])
        assert r.shape == (2,)
        assert r.location is not None
        assert r.location.file.endswith("warping.py")


def test_building_twice_gives_the_same_nodes() -> None:
    first, second = arap_energy(), arap_energy()
    for a, b in zip(first.problem.residuals, second.problem.residuals, strict=True):
        assert all(x is y for x, y in zip(a.components, b.components, strict=True))
    assert list(first.problem.fixed.values()) == list(second.problem.fixed.values())


def test_the_order_of_comparisons_does_not_depend_on_when_indices_were_made() -> None:
    def build() -> op.Energy:
        a, b = op.indices(H, W)
        return op.Energy(r=op.where(A[a, b] == B[a, b], X[a, b], X[a + 1, b]))

    builds = [build() for _ in range(20)]
    assert len({e.problem.residuals[0].components for e in builds}) == 1


def test_a_domain_has_the_indices_in_the_order_of_their_declaration() -> None:
    Z = op.Unknown("Z", (K, W, H))
    energy = op.Energy(a=Z[k, j, i], b=X[i, j] - Z[k, j, i], c=Z[0, j, 0])
    names = [[i.dim.name for i in r.domain] for r in energy.problem.residuals]
    assert names == [["H", "W", "K"], ["H", "W", "K"], ["W"]]


def test_unknowns_come_in_the_order_of_first_mention() -> None:
    assert op.Energy(a=A[i, j] + Y[i, j] * X[i, j], b=X[i, j]).unknowns == (Y, X)
    assert op.Energy(a=A[i, j] * X[i, j] + Y[i, j]).unknowns == (X, Y)


def test_what_cancels_is_not_read() -> None:
    energy = op.Energy(a=X[i, j] + A[i, j] - A[i, j] + 0 * w)
    assert [f.name for f in energy.fields] == ["X"]
    assert energy.params == ()


# -- the boundary rule -----------------------------------------------------------------------------------------------


def guards(e: Any) -> set[str]:
    energy = op.Energy(r=e)
    found = variables(energy.problem.residuals[0].components)
    return {str(v.key) for v in found if isinstance(v.key, ir.InBounds)}


@pytest.mark.parametrize(
    ("residual", "expected"),
    [
        (X[i, j], set()),
        (X[i + 1, j], {"in_bounds(i0 + 1, H)"}),
        (X[i + 1, j - 2] - A[i, j + 1], {"in_bounds(i0 + 1, H)", "in_bounds(i1 - 2, W)", "in_bounds(i1 + 1, W)"}),
        (X[i, j] - A[i - 1, j], {"in_bounds(i0 - 1, H)"}),
        (X[H - 1 - i, j], set()),
        (X[H - i, j], {"in_bounds(H - i0, H)"}),
        (X[2 * i, j], {"in_bounds(2*i0, H)"}),
        (X[0, W - 1], set()),
        (X[1, j], {"in_bounds(1, H)"}),
        (op.where(Mask[i + 1, j] == 0, X[i, j], 0), {"in_bounds(i0 + 1, H)"}),
        # Own guards replace the rule; those that always hold vanish.
        (op.where(op.in_bounds(i + 1, j), X[i + 1, j] - A[i - 1, j], 0), {"in_bounds(i0 + 1, H)"}),
        (op.where(op.in_bounds(i, j), X[i + 1, j], 0), set()),
        (op.where(op.in_bounds(2 * k, j, of=X), X[2 * k, j], 0), {"in_bounds(2*i1, H)"}),
    ],
)
def test_the_boundary_rule(residual: op.Expression, expected: set[str]) -> None:
    if "2*k" in repr(residual):
        residual = residual + op.Array("L", (K,))[k]
    assert guards(residual) == expected


def test_each_entry_of_a_list_asks_for_itself() -> None:
    energy = op.Energy(r=[op.where(op.in_bounds(i + 1, j), X[i + 1, j], 1), X[i - 1, j] + 1])
    data = {"X": np.arange(6.0).reshape(3, 2)}
    found = energy.residuals(data)
    np.testing.assert_array_equal(found["r[0]"], [[2, 3], [4, 5], [1, 1]])
    np.testing.assert_array_equal(found["r[1]"], [[0, 0], [1, 2], [3, 4]])


def test_a_residual_that_always_reads_inside_has_no_guard_at_any_size() -> None:
    a = op.Energy(r=X[i, j] - X[H - 1 - i, W - 1 - j])
    assert not any(isinstance(v.key, ir.InBounds) for v in variables(a.problem.residuals[0].components))
    data = {"X": np.arange(4.0).reshape(2, 2)}
    np.testing.assert_array_equal(a.residuals(data)["r"], data["X"] - data["X"][::-1, ::-1])


# -- fixed -----------------------------------------------------------------------------------------------------------


def test_fixed_conditions_are_over_the_grid_of_their_unknown() -> None:
    energy = op.Energy(r=X[i, j], s=Y[i, j], fixed={X: (op.value(j) == 0) & (Mask[i, j] > w), Y: True})
    condition = energy.problem.fixed[X.field]
    domain = ir.canonical_domain(X.field.dims)
    assert {index for v in variables([condition]) for index in ir.indices_of(v.key)} == set(domain)
    data = {"X": np.ones((2, 3)), "Y": np.ones((2, 3, 2)), "Mask": np.array([[1, 1, 0], [0, 1, 1]]), "w": 0.5}
    J = energy.jacobian(data).toarray()
    np.testing.assert_array_equal(J[:6, :6], np.diag([0, 1, 1, 1, 1, 1]))
    np.testing.assert_array_equal(J[6:], 0)


def test_indices_of_a_square_unknown_stand_for_axes_in_order_of_declaration() -> None:
    a, b = op.indices(K, K)
    S, P = op.Unknown("S", (K, K)), op.Array("P", (K, K), dtype=bool)
    energy = op.Energy(r=S[a, b], fixed={S: P[a, b]})
    flags = np.array([[0, 1], [0, 0]], bool)
    J = energy.jacobian({"S": np.ones((2, 2)), "P": flags}).toarray()
    np.testing.assert_array_equal(np.diag(J), [1, 0, 1, 1])


# -- mistakes --------------------------------------------------------------------------------------------------------

S = op.Unknown("S", (K, K))
X_again = op.Array("X", (H, W))
w_array = op.Array("w", (H, W))

MISTAKES: list[tuple[Callable[[], Any], list[str]]] = [
    (lambda: op.Energy(), ["needs a term", "op.Energy(fit="]),
    (lambda: op.Energy(X[i, j]), ["every term has a name", "op.Energy(fit=", "got an Expression without one"]),
    (lambda: op.Energy({"fit": X[i, j]}), ["op.Energy(**terms)", "got a dict"]),
    (lambda: op.Energy(a=[]), ["'a'", "empty list"]),
    (lambda: op.Energy(**{"reg[0]": X[i, j], "reg": [X[i, j]]}), ["'reg[0]' cannot name a term", "letters"]),
    (lambda: op.Energy(**{"": X[i, j]}), ["'' cannot name a term"]),
    (lambda: op.Energy(a=[[X[i, j]]]), ["'a[0]'", "op.vector"]),
    (lambda: op.Energy(a=X), ["'X'", "X[i, j]"]),
    (lambda: op.Energy(a="X"), ["'X'"]),
    (lambda: op.Energy(a=None), ["NoneType"]),
    (lambda: op.Energy(a=3), ["'a'", "reads no unknown", "constant"]),
    (lambda: op.Energy(a=[X[i, j], A[i, j] * w]), ["'a[1]'", "reads no unknown", "reads only A, w", "op.Unknown"]),
    (lambda: op.Energy(a=X[i, j] - X[i, j]), ["'a'", "reads no unknown", "0 everywhere"]),
    (lambda: op.Energy(a=X[i, j] > 0), ["'a'", "a condition", "op.where"]),
    (lambda: op.Energy(a=X[i, j] + X_again[i, j]), ["'X'", "declared twice", "an unknown", "an array", "(H, W)"]),
    (lambda: op.Energy(a=X[i, j] * w, b=X[i, j] * w_array[i, j]), ["'w'", "declared twice", "a param"]),
    (lambda: op.Energy(a=X[i, j] * op.value(K)), ["the size K", "'a'", "bound by no data"]),
    (lambda: op.Energy(a=X[i, j] * op.value(k)), ["the size K", "bound by no data"]),
    (lambda: op.Energy(a=X[i, j], fixed={Y: True}), ["'Y'", "no term reads", "X"]),
    (lambda: op.Energy(a=X[i, j], bounds={X: (0, 1)}), ["bounds on unknowns are not there yet", "op.maximum"]),
    (lambda: op.Energy(a=X[i, j], fixed={A: True}), ["'A'", "an array", "unknowns themselves"]),  # type: ignore[dict-item]
    (lambda: op.Energy(a=X[i, j], fixed={"X": True}), ["'X'", "unknowns themselves"]),  # type: ignore[dict-item]
    (lambda: op.Energy(a=X[i, j], fixed=X[i, j]), ["fixed is no term", "fixed={X: condition}"]),
    (lambda: op.Energy(a=X[i, j], fixed={X: Mask[i, j]}), ["'X'", "a number", "!= 0"]),
    (lambda: op.Energy(a=Y[i, j], fixed={Y: Y[i, j] > 0}), ["'Y'", ".all()"]),
    (lambda: op.Energy(a=X[i, j], fixed={X: X[i, j] > 0}), ["reads the unknown 'X'", "data only"]),
    (lambda: op.Energy(a=X[i, j], fixed={X: op.value(k) == 0}), ["'X' of shape (H, W)", "1 indices over K", "0 such"]),
    (
        lambda: op.Energy(a=S[k, 0], fixed={S: op.value(k) == 0}),
        ["'S' of shape (K, K)", "2 such", "different dims"],
    ),
]


@pytest.mark.parametrize(("mistake", "parts"), MISTAKES)
def test_mistakes_in_energies(mistake: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(op.EnergyError) as caught:
        mistake()
    message = str(caught.value)
    assert "test_energy.py:" in message
    for part in parts:
        assert part in message


def test_a_mistake_names_the_line_of_the_residual() -> None:
    residual = A[i, j] * 2
    line = residual.location.line
    with pytest.raises(op.EnergyError) as caught:
        op.Energy(a=residual)
    assert caught.value.location == residual.location
    assert f"test_energy.py:{line}:" in str(caught.value)


def test_a_folder_whose_name_begins_with_optpy_is_the_users() -> None:
    # Not a folder inside the package: a neighbour of it.
    file = f"{Path(op.__file__).parent}_of_a_user/energy.py"
    with pytest.raises(op.EnergyError) as caught:
        exec(compile("\n\nop.dims('3D')", file, "exec"), {"op": op})
    assert str(caught.value).startswith(f"{file}:3: ")


def test_an_energy_says_what_it_is() -> None:
    text = repr(arap_energy())
    for part in ["reg[3]", "(H, W, 2)", "Offset (H, W, 2)", "Mask (H, W) uint8", "w_fit, w_reg", "fixed: Angle where"]:
        assert part in text


def test_public_names() -> None:
    assert set(op.__all__) <= set(dir(op))
    for name in op.__all__:
        assert getattr(op, name) is not None
