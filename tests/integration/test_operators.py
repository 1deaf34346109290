"""Generated routines against the dense Jacobian, on random energies at many sizes."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import optpy as op
from optpy.api.pipeline import derive
from optpy.api.plan import build
from optpy.energy.check.evaluation import solved_elements
from optpy.energy.data.binding import bind
from optpy.ir import FuncSchedule, FuncStorage, ResidualSchedule, VectorKind
from optpy.kernels.runtime import cpu, executor
from optpy.kernels.toolchain import toolchain
from optpy.kernels.toolchain.compiler import compile_c
from tests.support.deep import but_deep
from tests.support.kernel_flags import Flags, checked, compiled_with, flags_behind, quick
from tests.support.operator_checks import Operators, check_everything, near, outcomes, stacked
from tests.support.random_energies import BIG, RandomEnergy, random_energies
from tests.support.schedules import GATHERS, STENCILS, stencils_by_hand

pytestmark = pytest.mark.native

SIZES = [(1, 1, 1), (1, 4, 2), (3, 1, 5), (5, 3, 4), (2, 7, 3)]
"""Also smaller than the stencils, which reach 3 to each side."""
KEPT = [*GATHERS[1:], *STENCILS]
"""Of residuals on grids."""
EXAMPLES = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module", autouse=True)
def _threads_for_small_work() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor, "ACCESSES_PER_THREAD", 1)
        yield


# -- the tests -------------------------------------------------------------------------------------------------------


@settings(EXAMPLES, max_examples=25)
@given(random_energies())
def test_the_jacobian_is_the_difference_quotient_of_the_residuals(random: RandomEnergy) -> None:
    assume(random.smooth)
    energy, data, h = random.energy, random.data(random.sizes(3, 2, 4)), 1e-6
    J = energy.jacobian(data).toarray()
    column = 0
    for u in energy.problem.unknowns:
        solved = np.repeat(solved_elements(energy.problem, u, bind(energy.problem, data)).ravel(), u.channels)
        for n in range(data[u.name].size):
            step = np.zeros(data[u.name].size)
            step[n] = h
            step = step.reshape(data[u.name].shape)
            above, below = (stacked(energy, data | {u.name: data[u.name] + s}) for s in (step, -step))
            np.testing.assert_allclose(J[:, column], solved[n] * (above - below) / (2 * h), rtol=1e-5, atol=1e-6)
            column += 1
    assert column == J.shape[1]


def check_in_float64(random: RandomEnergy) -> None:
    """At many sizes, and by any number of threads to the same bits."""
    for cycle in SIZES:
        check_everything(random.energy, random.data(random.sizes(*cycle)))
    data = random.data(random.long_sizes())
    check_everything(random.energy, data)
    one, two, three = (outcomes(Operators(random.energy, data, threads=n)) for n in (1, 2, 3))
    assert one == two == three


def check_in_float32(random: RandomEnergy) -> None:
    for cycle in SIZES:
        check_everything(random.energy, random.data(random.sizes(*cycle)), np.float32, epsilon=3e-5)


@settings(EXAMPLES, max_examples=6)
@given(random_energies())
def test_every_routine_agrees_with_the_dense_jacobian(random: RandomEnergy) -> None:
    check_in_float64(random)


@settings(EXAMPLES, max_examples=4)
@given(random_energies())
def test_float32_is_as_close_as_its_precision(random: RandomEnergy) -> None:
    check_in_float32(random)


def check_stencils(random: RandomEnergy, way: ResidualSchedule, terms: str) -> None:
    """With J, J p or both, or J^T J, stored at the points of grids, and all intermediates."""
    funcs = [FuncSchedule(f.name, FuncStorage.PARTIALS, in_cost=True) for f in random.energy.problem.funcs]
    by_hand = op.Schedule(funcs=funcs, residuals=stencils_by_hand(random.energy, way), terms={"*": terms})
    solver = build(random.energy, "float64", by_hand)
    for cycle in SIZES:
        check_everything(random.energy, random.data(random.sizes(*cycle)), solver=solver)


@settings(EXAMPLES, max_examples=8)
@given(random_energies(), st.sampled_from(KEPT), st.sampled_from(["merged", "separate"]))
def test_what_stencils_store_agrees_with_the_dense_jacobian(
    random: RandomEnergy, way: ResidualSchedule, terms: str
) -> None:
    check_stencils(random, way, terms)


@pytest.mark.deep
@pytest.mark.parametrize("flags", [tuple, checked], ids=["as for users", "undefined behaviour ends it"])
@settings(EXAMPLES, max_examples=200)
@given(random=random_energies(), way=st.sampled_from(KEPT), terms=st.sampled_from(["merged", "separate"]))
def test_every_routine_of_many_energies(flags: Flags, random: RandomEnergy, way: ResidualSchedule, terms: str) -> None:
    with compiled_with(flags):
        check_in_float64(random)
        check_in_float32(random)
        check_stencils(random, way, terms)


# -- single energies -------------------------------------------------------------------------------------------------

N, H, W, K = op.dims("N H W K")
n, m = op.indices(N, N)
i, j, k = op.indices(H, W, K)
COMPILERS = {"zig": f"{toolchain.zig_binary()} cc", "gcc": "gcc"}


def every_function() -> op.Energy:
    """Every function of the language, stencils, strides, sums over a window, unknowns on four grids."""
    X, Y, s = op.Unknown("X", (H, W), 2), op.Unknown("Y", (W,)), op.Unknown("s", ())
    Z = op.Unknown("Z", (H, W, K))
    A, M = op.Array("A", (H, W), 2), op.Array("M", (H, W), dtype=bool)
    B, G = op.Array("B", (H, W), dtype=np.uint8), op.Array("G", (K,), dtype=np.float64)
    C = op.Array("C", (H,), dtype=np.int32)
    w, v = op.params("w v")
    x, y = X[i, j][0], X[i, j + 1][1]
    bounded = 0.9 * op.sin(x)
    return op.Energy(
        fixed={X: M[i, j], Y: op.value(j) == 1},
        fit=op.where(M[i, j] | (B[i, j] > 1), w * (X[i, j] - A[i, j]), 0),
        rotated=op.rotate2d(s[()], X[i - 1, j]) - X[i, j],
        functions=[
            op.vector(op.sin(x), op.cos(y), op.tan(0.5 * bounded), op.asin(bounded), op.acos(bounded), op.atan(x)),
            op.vector(op.sinh(x), op.cosh(y), op.tanh(x), op.asinh(y), op.acosh(1.5 + x * x), op.atanh(bounded)),
            op.vector(op.exp(x), op.log(1.5 + y * y), op.sqrt(1 + x * x), op.abs(x), op.sign(y) * x, op.floor(x) + y),
            op.vector(op.minimum(x, y), op.maximum(x, 2 * y), op.atan2(x, 2 + y * y), (1.5 + bounded) ** y, x**-2),
            op.vector(
                op.log1p(y * y), op.expm1(x), op.hypot(x, 2 * y), op.cbrt(bounded - 2), op.sinc(x), op.mod(x, 0.37)
            ),
            op.vector(x**7, (1 + y * y) ** 1.5, (1 + x * x) ** 0.3, x * op.stop_gradient(y), v / (2 + y)),
        ],
        window=G[k] * Z[i, j + k, 0] - Y[j] * s[()],
        first=X[i, 0][0] * A[i, j][0] + X[i, 0][1],  # every pixel reads both channels of the first of its row
        volume=Z[i, j, k] - Z[i + 1, j - 1, k - 1],
        columns=Y[W - 1 - j] * X[2 * i, j][1] - x,
        last=op.where((op.value(i) == op.value(H - 1)), x - 1, 0),
        always=op.where((C[i] <= C[i]) & (C[H - 1 - i] != 0.5), x, 1),
    )


def data_of_every_function(*sizes: int) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    h, w, k_ = sizes
    return dict(
        X=rng.uniform(0.2, 0.9, (h, w, 2)),
        Y=rng.standard_normal(w),
        s=np.array(0.3),
        Z=rng.standard_normal((h, w, k_)),
        A=rng.standard_normal((h, w, 2)),
        M=rng.random((h, w)) < 0.5,
        B=rng.integers(0, 4, (h, w), np.uint8),
        G=rng.standard_normal(k_),
        C=rng.integers(0, 2, h, np.int32),
        w=1.5,
        v=-0.5,
    )


@pytest.mark.optimised
def test_every_function_of_the_language() -> None:
    energy = every_function()
    for sizes in ((1, 1, 1), (1, 5, 2), (4, 1, 3), (5, 6, 2)):
        check_everything(energy, data_of_every_function(*sizes))


def exact_functions() -> op.Energy:
    """Functions that exist for the sake of arguments whose squares, or sums with 1, would lose or overflow them."""
    X, Y = op.Unknown("X", (N,)), op.Unknown("Y", (N,))
    x, y = X[n], Y[n]
    return op.Energy(
        fixed={Y: op.value(n) >= 0},  # its derivatives overflow
        log1p=op.log1p(x),
        expm1=op.expm1(x),
        hypot=op.hypot(y, 0.75 * y),
        cbrt=op.cbrt(y),
        sinc=op.sinc(x),
    )


def check_exact_functions(dtype: Any, solver: op.Solver | None = None) -> None:
    """Values, and where they do not overflow derivatives, to a few units in the last place."""
    small = np.array([1e-10, -1e-10, 1e-30, -3e-7, 0.0, 1e-3, 0.1, -0.2, 0.4, -0.7, 1.5] * 20, dtype)
    large = (np.array([1e30, -1e30, 1e-30, -1e-25, 1.0, -2.0, 3e5, 8.0, -27.0, 1e20, 1e-20] * 20)).astype(dtype)
    energy, eps = exact_functions(), float(np.finfo(dtype).eps)
    data = dict(X=small, Y=large)
    x, y = small.astype(np.longdouble), large.astype(np.longdouble)
    expected = dict(log1p=np.log1p(x), expm1=np.expm1(x), hypot=1.25 * abs(y), cbrt=np.cbrt(y), sinc=np.sinc(x))
    ops = Operators(energy, data, dtype, solver=solver)
    for name, found in ops.problem.residuals().items():
        np.testing.assert_allclose(found[:, 0].astype(np.longdouble), expected[name], rtol=4 * eps, err_msg=name)
    with np.errstate(all="ignore"):
        sinc = np.where(abs(x) < 1e-4, -(np.pi**2) * x / 3, (np.cos(np.pi * x) - np.sinc(x)) / x)
    slopes = np.log1p(x) / (1 + x) + np.expm1(x) * np.exp(x) + np.sinc(x) * sinc
    ops.linearise()
    np.testing.assert_allclose(
        ops.get(VectorKind.G)[: len(x)], slopes.astype(np.float64), rtol=1e-5 if eps > 1e-10 else 1e-7, atol=8 * eps
    )


@pytest.mark.optimised
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_functions_are_exact_where_their_formulas_are_not(dtype: Any) -> None:
    check_exact_functions(dtype)


@pytest.mark.parametrize("dtype", but_deep([np.float32, np.float64], (np.float32,)))
@pytest.mark.parametrize("compiler", but_deep(COMPILERS, ("zig",)))  # gcc: in the next one
def test_generated_code_has_no_warnings(compiler: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which(COMPILERS[compiler].split()[0]) is None:
        pytest.skip(f"no {compiler} on this machine")
    source = derive(every_function().problem, np.dtype(dtype).name).listing.source
    monkeypatch.setenv("OPTPY_CC", COMPILERS[compiler])
    with flags_behind(*quick() if compiler == "zig" else ()):  # clang warns before it optimises
        assert compile_c(source, name="energy", werror=True).path.exists()


@pytest.mark.optimised
@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine")
@pytest.mark.parametrize("level", but_deep(["-O1", "-O3"], ("-O1",)))  # as for users it takes long
def test_gcc_computes_the_same_and_has_no_warnings(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_CC", "gcc")
    monkeypatch.setattr(cpu, "compile_c", functools.partial(compile_c, werror=True))
    energy = every_function()
    with flags_behind(level):
        for sizes in ((1, 1, 1), (1, 5, 2), (5, 40, 2)):
            check_everything(energy, data_of_every_function(*sizes), np.float32, 1e-4)


@pytest.mark.optimised
@pytest.mark.parametrize(("dtype", "epsilon"), [(np.float64, 1e-14), (np.float32, 1e-6)])
def test_rows_longer_than_a_segment(dtype: Any, epsilon: float) -> None:
    """Kernels visit at most 2048 points of a row at a time; the ends of a row are elsewhere."""
    X, Y, A = op.Unknown("X", (N,)), op.Unknown("Y", (N,)), op.Array("A", (N,))
    energy = op.Energy(
        a=X[n + 3] - X[n - 2] * A[n],
        b=op.where(op.in_bounds(n + 2), op.sin(X[n]) - Y[n + 2], Y[n]),
        c=Y[N - 1 - n] - X[n],
        fixed={X: A[n] > 0.8},
    )
    rng = np.random.default_rng(3)
    data: dict[str, Any] = {name: rng.uniform(-1, 1, 5000).astype(np.float32) for name in "XYA"}
    data["A"][70:1400] = 1
    F, J = stacked(energy, data), energy.jacobian(data)
    for threads in (1, 2, 3):
        ops = Operators(energy, data, dtype, threads)
        near(ops.problem.evaluate().total, 0.5 * F @ F, F @ F, epsilon)
        near(ops.linearise(), np.abs(J.T @ F).max(initial=0), 100, epsilon)
        near(ops.get(VectorKind.G), J.T @ F, 100, epsilon)
        near(ops.get(VectorKind.C), J.multiply(J).sum(axis=0), 100, epsilon)
        p = rng.standard_normal(J.shape[1]) * ops.solved()
        Ap, pAp = ops.apply(p)
        near(Ap, J.T @ (J @ p), 100, epsilon)
        near(pAp, p @ (J.T @ (J @ p)), p @ p, epsilon)
        ops.check_poison()


@pytest.mark.optimised
def test_whole_numbers_are_compared_exactly_in_float32() -> None:
    X, A = op.Unknown("X", (N,)), op.Array("A", (N,), dtype=np.int32)
    B = op.Array("B", (N,), dtype=np.int32)
    conditions = [
        A[n] == BIG + 1, A[n] < BIG + 1, A[n] <= BIG, A[n] > BIG, A[n] >= BIG + 1, A[n] != B[n], A[n] < B[n],
        A[n] <= BIG + 0.5, A[n] < BIG + 0.5, A[n] > BIG + 0.5, A[n] >= BIG + 0.5, A[n] == BIG + 0.5,
        A[n] < 3_000_000_000, A[n] > -(2**80), op.value(n) == 1, A[n] == A[n], A[n] < A[n],
    ]  # fmt: skip
    energy = op.Energy(count=op.vector(*[op.where(c, X[n], 0) for c in conditions]))
    a = np.arange(BIG - 2, BIG + 4, dtype=np.int32)
    b = np.full_like(a, BIG + 1)
    data = dict(X=np.ones(len(a)), A=a, B=b)
    got = Operators(energy, data, np.float32).problem.residuals()["count"]
    expected = [
        a == BIG + 1, a < BIG + 1, a <= BIG, a > BIG, a >= BIG + 1, a != b, a < b,
        a <= BIG, a <= BIG, a > BIG, a > BIG, a < 0,
        a > 0, a > 0, np.arange(len(a)) == 1, a > 0, a < 0,
    ]  # fmt: skip
    np.testing.assert_array_equal(got, np.stack(expected, axis=-1))
    np.testing.assert_array_equal(energy.residuals(data)["count"], got)


@pytest.mark.optimised
def test_the_arm_that_is_not_taken_may_be_infinite_or_nan() -> None:
    X, A = op.Unknown("X", (N,)), op.Array("A", (N,))
    x = X[n]
    energy = op.Energy(
        a=op.where(A[n] > 0, x / A[n], x),
        b=op.where(x > 0, op.log(x), 0.5 * x),
        c=op.where(x > 0, op.sqrt(x), op.where(x < 0, op.sqrt(-x), 0)),
        d=op.where(A[n + 1] != 0, x / op.sin(A[n + 1]), 1),
        e=op.where(A[n] > 0, op.norm(op.vector(x, A[n])), op.exp(1e4 * A[n]) * x),
    )
    data = dict(X=np.array([1.0, 0, -1, 2, 0]), A=np.array([0.0, 2, 0, 0, 1]))
    assert np.isfinite(stacked(energy, data)).all()
    check_everything(energy, data)


def test_names_of_the_solver_s_vectors_are_free_for_arrays_and_params() -> None:
    X = op.Unknown("X", (N,))
    names = ["p_X", "delta_X", "g_X", "C_X", "candidate_X", "stored0", "F_fit", "solved_N", "f0_0", "n_N", "sum0"]
    arrays = [op.Array(name, (N,)) for name in names]
    alpha, local = op.params("alpha local0_0")
    total = op.sin(X[n]) * alpha + local * X[m]
    for a in arrays:
        total = total + a[n] * X[n] * X[n + 1] + a[n] * op.cos(X[n])
    energy = op.Energy(fit=total, fixed={X: arrays[0][n] > 1})
    rng = np.random.default_rng(2)
    data = {name: rng.standard_normal(5) for name in ["X", *names]}
    check_everything(energy, data | {"alpha": 0.5, "local0_0": 0.25})


def test_the_largest_gradient_is_found_in_any_of_many_channels() -> None:
    X, A = op.Unknown("X", (N,), 34), op.Array("A", (N,), 34)
    energy = op.Energy(fit=X[n] - A[n])
    for channel in (0, 31, 32, 33):
        A_ = np.zeros((2, 34))
        A_[1, channel] = -7
        assert Operators(energy, dict(X=np.zeros((2, 34)), A=A_)).linearise() == 7


def test_an_energy_may_have_many_terms() -> None:
    X = op.Unknown("X", (N,))
    terms: dict[str, Any] = {f"t{t}": 0.01 * t * (X[n] - t) for t in range(1, 81)}
    energy = op.Energy(**terms)
    check_everything(energy, dict(X=np.array([0.5, 3.0])))


def test_components_may_be_constants_conditions_and_matrices() -> None:
    X, s = op.Unknown("X", (N,)), op.Unknown("s", ())
    energy = op.Energy(
        mixed=op.vector(X[n] - 1, 2.0, 0.0, X[n + 1] > 0.5),
        matrix=op.matrix([[X[n], s[()]], [1, X[n] * s[()]]]),
        single=s[()] ** 2 - 4,
    )
    data = dict(X=np.array([0.1, 1.0, -2.0]), s=np.array(1.5))
    check_everything(energy, data)
    shapes = {name: r.shape for name, r in energy.residuals(data).items()}
    assert shapes == {"mixed": (3, 4), "matrix": (3, 2, 2), "single": ()}


def test_params_and_arrays_may_have_any_letters() -> None:
    X, A = op.Unknown("Größe", (op.Dim("Höhe"),)), op.Array("Ziel", (op.Dim("Höhe"),))
    p = op.indices(op.Dim("Höhe"))
    energy = op.Energy(fit=op.params("λ") * (X[p] - A[p]))
    check_everything(energy, {"Größe": np.zeros(3), "Ziel": np.ones(3), "λ": 2.0})
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setenv("OPTPY_CC", "gcc")
        assert compile_c(op.compile(energy, "cpu", np.float64).source(), name="energy").path.exists()


def test_constants_whose_squares_overflow_are_refused_with_the_line() -> None:
    X = op.Unknown("X", (N,))
    with pytest.raises(op.EnergyError, match=r"test_operators.py:\d+: .*not finite"):
        op.compile(op.Energy(fit=1e200 * X[n] - 1), "cpu", np.float64)


@pytest.mark.parametrize("everywhere", [True, False])
def test_an_unknown_may_be_fixed_as_a_whole(everywhere: bool) -> None:
    X, Y, s = op.Unknown("X", (N,)), op.Unknown("Y", (K,)), op.Unknown("s", ())
    energy = op.Energy(
        a=X[n] * s[()] - 1,
        b=op.sin(Y[k]) + s[()] * X[2 * k],
        fixed={X: op.value(n) >= 0, Y: op.vector(everywhere)[0], s: op.vector(not everywhere)[0]},
    )
    data = dict(X=np.array([0.5, 2.0, 1.0]), Y=np.array([0.1, 0.2]), s=np.array(3.0))
    check_everything(energy, data)
    # Few iterations: the sine's slope is 0 at the minimum, which takes thousands.
    result = op.solve(energy, data, device="cpu", dtype=np.float64, max_iterations=10)
    assert result.cost < result.initial_cost
    np.testing.assert_array_equal(result.x["X"], data["X"])
    np.testing.assert_array_equal(result.x["Y"] == data["Y"], everywhere)
    assert (result.x["s"] == data["s"]) != everywhere
