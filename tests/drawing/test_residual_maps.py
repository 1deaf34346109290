"""Maps of residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op

H, W, T, V, E = op.dims("H, W, T, V, E")
t, i, j, v, e = op.indices(T, H, W, V, E)
X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
GRID = op.Energy(fit=X[i, j] - A[i, j], reg=[X[i, j] - X[i + 1, j], X[i, j] - X[i, j + 1]])
RNG = np.random.default_rng(3)
PICTURE = {"X": RNG.normal(size=(5, 7)), "A": RNG.normal(size=(5, 7))}


def maps(figure: Any) -> list[Any]:
    """The axes of the maps, without the scales beside them."""
    return [axes for axes in figure.axes if axes.get_title()]


def drawn(figure: Any, panel: int) -> Any:
    return maps(figure)[panel].images[0].get_array()


def test_a_term_over_a_picture_is_a_picture() -> None:
    figure = op.show_residuals(GRID, PICTURE)
    np.testing.assert_allclose(drawn(figure, 0), np.abs(PICTURE["X"] - PICTURE["A"]))
    x, both = PICTURE["X"], np.zeros((5, 7))
    both[:-1] += (x[:-1] - x[1:]) ** 2
    both[:, :-1] += (x[:, :-1] - x[:, 1:]) ** 2
    np.testing.assert_allclose(drawn(figure, 1), np.sqrt(both))  # the entries of a list are one map
    shares = [axes.get_title() for axes in maps(figure)]
    fit, reg = 0.5 * np.sum((x - PICTURE["A"]) ** 2), 0.5 * both.sum()
    for title, name, cost in zip(shares, ("fit", "reg"), (fit, reg), strict=True):
        assert title == f"{name}: cost {cost:.4g} ({100 * cost / (fit + reg):.0f} %)"


def test_over_more_axes_the_largest_value_is_shown_and_over_one_a_curve() -> None:
    Y, k = op.Unknown("Y", (T, H, W)), op.Unknown("k", (T,), channels=2)
    energy = op.Energy(all=Y[t, i, j] - 1, curve=k[t])
    data = {"Y": RNG.normal(size=(3, 4, 5)), "k": RNG.normal(size=(3, 2))}
    figure = op.show_residuals(energy, data)
    np.testing.assert_allclose(drawn(figure, 0), np.abs(data["Y"] - 1).max(axis=0))
    np.testing.assert_allclose(maps(figure)[1].lines[0].get_ydata(), np.linalg.norm(data["k"], axis=1))


def mesh_energy() -> op.Energy:
    a, b = op.Graph("G", E, (V, V))[e]
    P = op.Unknown("P", (V,), channels=3)
    return op.Energy(pull=P[v], edges=P[a] - P[b])


def test_on_a_mesh_vertices_have_the_mean_of_their_edges() -> None:
    positions, faces = RNG.normal(size=(4, 3)), np.array([[0, 1, 2], [0, 2, 3]])
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    figure = op.show_residuals(mesh_energy(), {"P": positions, "G": edges}, mesh=(positions, faces))
    pull, along = (axes.collections[0] for axes in maps(figure))
    assert len(pull.get_facecolor()) == len(along.get_facecolor()) == 2
    lengths = np.linalg.norm(positions[edges[:, 0]] - positions[edges[:, 1]], axis=1)
    means = [np.mean([x for x, ends in zip(lengths, edges, strict=True) if n in ends]) for n in range(4)]
    scale = [axes for axes in figure.axes if axes.get_label() == "<colorbar>"]
    assert scale[1].get_ylim()[1] == pytest.approx(max(means))


@pytest.mark.parametrize(
    ("mesh", "message"),
    [
        ((np.zeros((4, 2)), np.zeros((1, 3), int)), r"vertices have the shape \(V, 3\), not \(4, 2\)"),
        ((np.zeros((4, 3)), np.zeros((1, 4), int)), r"faces are whole numbers of the shape \(F, 3\)"),
        ((np.zeros((4, 3)), np.zeros((1, 3))), "of float64"),
        ((np.zeros((4, 3)), np.array([[0, 1, 4]])), "faces point outside the 4 vertices"),
    ],
)
def test_a_mesh_that_is_none_is_refused(mesh: Any, message: str) -> None:
    with pytest.raises(op.OptionError, match=message):
        op.show_residuals(mesh_energy(), {"P": np.zeros((4, 3)), "G": np.zeros((1, 2), int)}, mesh=mesh)
