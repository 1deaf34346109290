"""Arrays read at real coordinates: values, derivatives, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.ndimage import map_coordinates

import optpy as op
from optpy import ir
from optpy.energy.check.at_point import AtPoint
from optpy.energy.check.steep import steep_operation
from optpy.energy.data.binding import bind
from optpy.symbolic.traverse import variables
from tests.support.sampled_energies import ENERGIES, convolved

H, W, D, V, E = op.dims("H W D V E")
i, j, k, v, e = op.indices(H, W, D, V, E)
X, Im, C = op.Unknown("X", (V,), 2), op.Array("I", (H, W)), op.Array("C", (H, W), 3)
RNG = np.random.default_rng(0)
METHODS, BOUNDARIES = ("linear", "cubic"), ("nearest", "constant", "mirror", "wrap")


def sampled(array: Any, coordinates: Any, **options: Any) -> Any:
    """An array at coordinates, by an energy."""
    rank = len(coordinates)
    dims = [D, H, W][3 - rank :]
    at, source = op.Unknown("at", (V,), rank), op.Array("source", dims)
    energy = op.Energy(fit=op.Sampled(source, **options)(*at[v]))
    return energy.residuals(dict(at=np.stack(coordinates, axis=-1), source=array))["fit"]


@pytest.mark.parametrize(("rank", "method", "boundary"), list(product((1, 2, 3), METHODS, BOUNDARIES)))
def test_values_are_those_of_a_convolution(rank: int, method: str, boundary: str) -> None:
    array = RNG.normal(size=(4, 3, 5)[:rank])
    at = [RNG.uniform(-9, 9, 60) for _ in range(rank)]
    for c in at:
        c[:9] = np.arange(-4, 5)
    options = dict(value=0.7) if boundary == "constant" else {}
    found = sampled(array, at, method=method, boundary=boundary, **options)
    np.testing.assert_allclose(found, convolved(array, at, method, boundary, **options), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("boundary", "mode"),
    [("nearest", "nearest"), ("constant", "grid-constant"), ("mirror", "mirror"), ("wrap", "grid-wrap")],
)
def test_values_are_those_of_scipy(boundary: str, mode: str) -> None:
    array, at = RNG.normal(size=(6, 4)), [RNG.uniform(-7, 9, 80), RNG.uniform(-7, 9, 80)]
    found = sampled(array, at, boundary=boundary)
    np.testing.assert_allclose(found, map_coordinates(array, at, order=1, mode=mode), rtol=0, atol=1e-14)


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_array_of_one_element_is_that_everywhere(boundary: str) -> None:
    at = np.array([-3.3, 0.0, 0.4, 2.0])
    expected = np.array([0.0, 5.0, 3.0, 0.0]) if boundary == "constant" else np.full(4, 5.0)
    np.testing.assert_allclose(sampled(np.array([5.0]), [at], boundary=boundary), expected, rtol=1e-14)


def test_far_away_is_beyond_the_end_and_what_is_no_place_has_no_value() -> None:
    array = np.array([[1.0, 2.0], [3.0, 4.0]])
    A, B = op.Array("A", (V,)), op.Unknown("B", (V,))
    s = op.Sampled(Im)(B[v] / A[v], 0 * B[v])
    with np.errstate(all="ignore"):
        found = op.Energy(fit=s).residuals(dict(A=[1e-30, -1e-30, 0.0, 0.0], B=[1.0, 1.0, 1.0, 0.0], I=array))["fit"]
    np.testing.assert_array_equal(found, [3.0, 1.0, np.nan, np.nan])


@pytest.mark.parametrize("name", ENERGIES)
def test_derivatives_are_those_of_the_interpolant(name: str) -> None:
    energy, data = ENERGIES[name]()
    report = op.check_gradients(energy, data(np.random.default_rng(3), 4))
    if name == "far_away":  # rounding hides differences at 1e9; and some slopes are given
        assert report.worst["constant"].verdict != "disagrees"
    else:
        assert all(entry.verdict != "disagrees" for label, entry in report.worst.items() if label != "given")
    assert "given" not in report.worst or report.worst["given"].verdict == "disagrees"


def test_a_kink_has_the_slope_beyond_it() -> None:
    c = op.Unknown("c", ())
    energy = op.Energy(fit=op.Sampled(op.Array("A", (H,)))(c[()]))
    (slope,) = energy.jacobian(dict(c=1.0, A=[0.0, 1.0, 5.0])).toarray().ravel()
    assert slope == 4.0


def test_a_given_gradient_is_sampled_and_takes_part_in_the_chain_rule() -> None:
    G, F = op.Array("G", (H, W)), op.Array("F", (H, W))
    s = op.Sampled(Im, gradient=(G, F))(X[v][0] ** 2, 3 * X[v][1])
    energy = op.Energy(fit=op.sin(s))
    image, g, f = RNG.normal(size=(3, 5, 4))
    x = RNG.uniform(0, 1.5, (7, 2))
    at = [x[:, 0] ** 2, 3 * x[:, 1]]
    data = dict(X=x, I=image, G=g, F=f)
    value = map_coordinates(image, at, order=1, mode="nearest")
    np.testing.assert_allclose(energy.residuals(data)["fit"], np.sin(value), rtol=1e-13)
    slopes = [map_coordinates(a, at, order=1, mode="nearest") for a in (g, f)]
    expected = np.cos(value)[:, None] * np.stack([slopes[0] * 2 * x[:, 0], slopes[1] * 3], axis=-1)
    found = energy.jacobian(data).toarray().reshape(7, 7, 2)[np.arange(7), np.arange(7)]
    np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_integers_and_conditions_are_interpolated_as_numbers() -> None:
    B, U = op.Array("B", (H,), dtype=bool), op.Array("U", (H,), dtype=np.uint8)
    x = op.Unknown("x", ())
    energy = op.Energy(fit=[op.Sampled(B)(x[()]), op.Sampled(U)(x[()])])
    found = energy.residuals(dict(x=0.25, B=[True, False], U=np.array([200, 100], np.uint8)))
    assert found["fit[0]"] == 0.75
    assert found["fit[1]"] == 175.0


def test_a_vector_at_each_point_gives_a_vector() -> None:
    colours = RNG.normal(size=(4, 5, 3))
    energy = op.Energy(fit=op.Sampled(C)(*X[v]))
    at = RNG.uniform(-1, 5, (6, 2))
    found = energy.residuals(dict(X=at, C=colours))["fit"]
    expected = [map_coordinates(c, at.T, order=1, mode="nearest") for c in np.moveaxis(colours, -1, 0)]
    np.testing.assert_allclose(found, np.stack(expected, axis=-1), atol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_an_index_chooses_a_picture(method: str) -> None:
    """Of a stack along any axis; beyond its end by the boundary rule."""
    x, plane, cube = op.Unknown("x", (V,)), op.Array("plane", (D, H)), op.Array("cube", (H, D, W))
    options: Any = dict(method=method, boundary="mirror")
    energy = op.Energy(
        last=op.Sampled(plane, **options)(k + 2, x[v]),
        middle=op.Sampled(cube, **options)(x[v], k, 0.5 * x[v]),
    )
    data = dict(x=RNG.uniform(-3, 7, 6), plane=RNG.normal(size=(4, 5)), cube=RNG.normal(size=(5, 4, 3)))
    found = energy.residuals(data)
    mirrored = data["plane"][[2, 3, 2, 1]]
    last = [convolved(p, [data["x"]], method, "mirror") for p in mirrored]
    middle = [convolved(data["cube"][:, n], [data["x"], 0.5 * data["x"]], method, "mirror") for n in range(4)]
    np.testing.assert_allclose(found["last"], np.stack(last), atol=1e-13)
    np.testing.assert_allclose(found["middle"], np.stack(middle), atol=1e-13)


def test_a_func_is_sampled_as_an_array_of_its_values_is() -> None:
    image, gain, X_ = RNG.normal(size=(4, 5)), 1.7, RNG.uniform(-1, 5, (6, 2))
    g, bright = op.params("g"), op.Func("bright", (H, W))
    bright[i, j] = g * Im[i, j] ** 2 - op.where(op.in_bounds(i + 1, j), Im[i + 1, j], 0)
    data = dict(X=X_, I=image, g=gain)
    below = np.vstack([image[1:], np.zeros((1, 5))])
    bound = dict(X=X_, I=gain * image**2 - below)
    ours, plain = (op.Energy(fit=op.Sampled(s, method="cubic")(*X[v])) for s in (bright, Im))
    np.testing.assert_allclose(ours.residuals(data)["fit"], plain.residuals(bound)["fit"], atol=1e-13)
    np.testing.assert_allclose(ours.jacobian(data).toarray(), plain.jacobian(bound).toarray(), atol=1e-13)
    assert op.check_gradients(ours, data)
    assert "sampled.bright (H, W)" in str(ours)


def test_a_sampled_func_is_as_large_as_the_data_says() -> None:
    ramp = op.Func("ramp", (D,))
    ramp[k] = op.value(k)
    with pytest.raises(op.EnergyError, match="the size D in 'fit' is bound by no data"):
        op.Energy(fit=op.Sampled(ramp)(X[v][0]))
    bright, twin = op.Func("bright", (H, W)), op.Func("I", (H, W))
    bright[i, j] = twin[i, j] = Im[i, j]
    energy = op.Energy(fit=op.Sampled(bright)(*X[v]))
    with pytest.raises(op.DataError, match="'bright' is a Func: it is computed"):
        energy.cost(dict(X=np.ones((1, 2)), I=np.ones((2, 2)), bright=1))
    with pytest.raises(op.EnergyError, match="the name 'I' is declared twice"):
        op.Energy(fit=op.Sampled(twin)(*X[v]))


def test_texts_name_what_is_sampled() -> None:
    energy = op.Energy(fit=op.Sampled(Im)(*X[v]))
    assert "I[:, :](floor(X[i0, 0]), floor(X[i0, 1]))" in str(energy.to_sympy("fit"))
    assert "lfloor" in energy._repr_latex_()
    assert "arrays: I (H, W)" in str(energy)


S = op.Sampled(Im)


def moving() -> op.Func:
    """A Func that reads an unknown through another one."""
    inner, outer = op.Func("inner", (H,)), op.Func("moving", (H, W))
    inner[i] = op.sum(X[v][0] * op.value(i), over=v)
    outer[i, j] = inner[i] + op.value(j)
    return outer


sample: Any = op.Sampled
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: sample(X), "reads the unknown 'X' at computed places: .*X0 = op.Array\\('X0', ...\\)"),
    (lambda: sample(np.ones((3, 3))), "op.Sampled takes an op.Array, got a ndarray: declare"),
    (lambda: sample(op.Func("B", (H, W))), "the Func 'B' has no formula yet: assign B"),
    (lambda: sample(moving()), "reads the Func 'moving', which depends on the unknown 'X', at computed.*moving0 = op"),
    (lambda: sample(Im, gradient=(moving(), Im)), "gradient of op.Sampled reads the Func 'moving'"),
    (lambda: sample(op.Array("R", (H,), op.SO3)), "'R' lives on SO3"),
    (lambda: sample(op.Array("one", ())), "'one' has no axis"),
    (lambda: sample(Im[i, j]), "takes an op.Array"),
    (lambda: sample(Im, method="nearest"), "method='nearest' is none of op.Sampled: choose 'linear', 'cubic'"),
    (lambda: sample(Im, boundary="reflect"), "boundary='reflect' is none of op.Sampled: choose 'nearest'"),
    (lambda: sample(Im, value=2.0), "value=2.0 is that of the boundary 'constant'"),
    (lambda: sample(Im, boundary="constant", value=np.nan), "not finite"),
    (lambda: sample(Im, gradient=Im), r"'I' has 2 axes, and 1 arrays? .* as its gradient: gradient=\(G0, G1\)"),
    (lambda: sample(Im, gradient=(Im, C)), r"the gradient 'C' has shape \(H, W, 3\), and 'I' has \(H, W\)"),
    (lambda: sample(Im, gradient=(Im, X)), "gradient of op.Sampled reads the unknown 'X'"),
    (lambda: S(X[v][0]), "takes 2 coordinates, one for each axis of 'I', got 1"),
    (lambda: S(X[v]), r"got 1: .*; those of a vector v are \*v"),
    (lambda: S(X[v], 1), "coordinate 0 of .* has shape \\(2,\\)"),
    (lambda: S(X[v][0], i), "axis 1 of 'I' .*runs over W, but the index i there runs over H"),
    (lambda: S(H, X[v][0]), "axis 0 of 'I' is read at H, which is always outside"),
    (lambda: sample(Im, gradient=(None, Im))(X[v][0], 1), "coordinate 0 of .* is no index, and its gradient has None"),
    (lambda: S(op.robust(X[v][0], "huber"), 1), "robust"),
    (lambda: S("left", 1), "cannot stand in a formula"),
    (lambda: S[i, j], r"op.Sampled\(I\) is called with coordinates"),
    (lambda: S + 1, "stands for the whole array: call it with coordinates"),
    (lambda: 1 * X[v][0] + S, "stands for the whole array"),
    (lambda: Im(1.5, 2.5), r"op.Sampled\(I\)"),
    (lambda: Im[X[v][0], 1], r"op.Sampled\(I\)"),
]


@pytest.mark.parametrize("refused", range(len(REFUSED)))
def test_mistakes_are_told_with_the_line(refused: int) -> None:
    make, text = REFUSED[refused]
    with pytest.raises(op.EnergyError, match=text) as caught:
        make()
    assert "test_sampled.py" in str(caught.value)


def test_an_array_without_elements_has_none_to_be_sampled() -> None:
    x, edges, weight = op.Unknown("x", (V,)), op.Graph("edges", E, (V, V)), op.Array("weight", (E,))
    a, b = edges[e]
    energy = op.Energy(fit=op.Sampled(weight)(x[v]), pull=x[a] - x[b])
    with pytest.raises(op.DataError, match=r"'weight' is read by op\.Sampled, and the size E is 0"):
        energy.residuals(dict(x=np.ones(3), weight=np.ones(0), edges=np.ones((0, 2), int)))
    assert energy.cost(dict(x=np.ones(3), weight=np.ones(1), edges=np.array([[0, 1]]))) == 1.5


def test_a_coordinate_whose_slope_is_not_finite_is_told() -> None:
    x = op.Unknown("x", (V,))
    energy = op.Energy(fit=op.Sampled(op.Array("A", (H,)))(op.sqrt(x[v])))
    bound = bind(energy.problem, dict(x=np.zeros(2), A=[1.0, 3.0]), np.float64)
    (residual,) = energy.problem.residuals
    (by,) = (u for u in variables(residual.linearised) if isinstance(u.key, ir.Access))
    found = steep_operation(residual.linearised[0], by, AtPoint(residual.domain, bound, (1,)))
    assert found is not None
    assert "the square root of 0" in found.cause
