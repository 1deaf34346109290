"""The vector updates of preconditioned conjugate gradients and of the outer step, as routines.

They are the lines of ``solver/pcg.py`` (Nocedal & Wright, algorithm 5.3) between two products with J^T J, each sweep
fused into one pass over memory. ``alpha``, ``beta`` and the damping come as run-time scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from ..ir import Field, Reduce, Routine, Scalar, Store, canonical_domain
from ..symbolic.expr import (
    ONE,
    ZERO,
    Expr,
    add,
    call,
    const,
    logical_not,
    mul,
    negate,
    power,
    subtract,
    var,
    where,
)
from ..symbolic.operations import OPERATIONS, equal, less_equal
from .routines import by_grid
from .vectors import at, block_channel, block_channels, candidate, here, vector

SOLVER_SCALARS = (
    "alpha", "beta", "radius", "min_lm_diagonal", "max_lm_diagonal", "jacobi_scaling", "damped", "preconditioned",
)  # fmt: skip
"""Run-time numbers of the solver, in the order in which native code receives them."""


def solver_scalar(name: str) -> Scalar:
    """One of ``SOLVER_SCALARS`` as a leaf."""
    # The dot keeps them apart from the energy's params, whose names are identifiers.
    return Scalar(f"solver.{name}")


def _scalar(name: str) -> Expr:
    return var(solver_scalar(name))


ALPHA, BETA = _scalar("alpha"), _scalar("beta")

Preconditioned = Callable[[Field, Sequence[Expr]], list[Expr]]


def _jacobi(unknown: Field, r: Sequence[Expr]) -> list[Expr]:
    m = vector("M", unknown)
    return [mul(here(m, a), e) for a, e in enumerate(r)]


def _block_jacobi(unknown: Field, r: Sequence[Expr]) -> list[Expr]:
    m = vector("M", unknown, block_channels(unknown))
    n = range(unknown.channels)
    return [add(*(mul(here(m, block_channel(unknown, a, b)), r[b]) for b in n)) for a in n]


def pcg_routines(unknowns: Sequence[Field], blocks: bool) -> dict[str, list[Routine]]:
    """The sweeps of one PCG iteration: ``start``, ``direction``, ``update``, ``flush``, ``restart``."""
    precondition = _block_jacobi if blocks else _jacobi
    result: dict[str, list[Routine]] = {
        "start": [],
        "direction": [],
        "update": [],
        "flush": [],
        "restart": [],
    }
    suffix = "_block" if blocks else ""
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        builders = {
            "start": _start,
            "direction": _direction,
            "update": _update,
            "flush": _flush,
            "restart": _restart,
        }
        for name, build in builders.items():
            stores: list[Store] = []
            dots: list[Expr] = []
            for u in group:
                values, dot = build(u, precondition)
                stores.extend(
                    Store(at(vector(kind, u), domain, a), e) for kind, es in values.items() for a, e in enumerate(es)
                )
                dots.extend(dot)
            reductions = (Reduce("rz", add(*dots)),) if dots else ()
            result[name].append(Routine(f"pcg_{name}{suffix}_{n}", domain, tuple(stores), reductions))
    return result


Built = tuple[dict[str, list[Expr]], list[Expr]]


def _channels(kind: str, u: Field) -> list[Expr]:
    return [here(vector(kind, u), a) for a in range(u.channels)]


def _dot(x: Sequence[Expr], y: Sequence[Expr]) -> list[Expr]:
    return [mul(a, b) for a, b in zip(x, y, strict=True)]


def _start(u: Field, precondition: Preconditioned) -> Built:
    """delta = 0, r = -g, p = 0 (the first direction is z); r.z with z = M r."""
    r = [negate(g) for g in _channels("g", u)]
    zero: list[Expr] = [ZERO] * u.channels
    return {"r": r, "delta": zero, "p": zero}, _dot(r, precondition(u, r))


def _direction(u: Field, precondition: Preconditioned) -> Built:
    """delta += alpha p, then p = z + beta p: the step of the last iteration and the direction of the next."""
    p, delta = _channels("p", u), _channels("delta", u)
    z = precondition(u, _channels("r", u))
    return {
        "delta": [add(d, mul(ALPHA, x)) for d, x in zip(delta, p, strict=True)],
        "p": [add(a, mul(BETA, x)) for a, x in zip(z, p, strict=True)],
    }, []


def _update(u: Field, precondition: Preconditioned) -> Built:
    """r -= alpha Ap; r.z with z = M r."""
    r = [subtract(a, mul(ALPHA, b)) for a, b in zip(_channels("r", u), _channels("Ap", u), strict=True)]
    return {"r": r}, _dot(r, precondition(u, r))


def _flush(u: Field, precondition: Preconditioned) -> Built:
    """delta += alpha p."""
    return {"delta": [add(d, mul(ALPHA, x)) for d, x in zip(_channels("delta", u), _channels("p", u), strict=True)]}, []


def _restart(u: Field, precondition: Preconditioned) -> Built:
    """r = -g - A delta, with A delta in Ap: the true residual in place of the recurrence; r.z."""
    r = [negate(add(g, a)) for g, a in zip(_channels("g", u), _channels("Ap", u), strict=True)]
    return {"r": r}, _dot(r, precondition(u, r))


# -- damping and preconditioner ----------------------------------------------------------------------------------


def damping(unknowns: Sequence[Field], blocks: bool) -> list[Routine]:
    """D = clamp(c s^2, min, max) / (radius s^2) with c = diag(J^T J) and s = 1 / (1 + sqrt(c)) (Ceres' column scaling),
    and M, the inverse of the diagonal or of the blocks of J^T J + D."""
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        stores: list[Store] = []
        for u in group:
            c = vector("C", u, block_channels(u) if blocks else None)
            channels = range(u.channels)
            diagonal = [here(c, block_channel(u, a, a) if blocks else a) for a in channels]
            d = [_damping(e) for e in diagonal]
            stores.extend(Store(at(vector("D", u), domain, a), e) for a, e in enumerate(d))
            if blocks:
                matrix = {(a, b): here(c, block_channel(u, a, b)) for a in channels for b in channels if a <= b}
                for a in channels:
                    matrix[a, a] = add(matrix[a, a], d[a])
                inverse = inverse_of_symmetric(matrix, u.channels)
                m = vector("M", u, block_channels(u))
                stores.extend(
                    Store(at(m, domain, block_channel(u, a, b)), _chosen(e, a == b)) for (a, b), e in inverse.items()
                )
            else:
                stores.extend(
                    Store(at(vector("M", u), domain, a), _chosen(_safe_inverse(add(e, d[a])), True))
                    for a, e in enumerate(diagonal)
                )
        name = "damp_block" if blocks else "damp"
        routines.append(Routine(f"{name}_{n}", domain, tuple(stores)))
    return routines


def _damping(c: Expr) -> Expr:
    scale = power(add(ONE, mul(_scalar("jacobi_scaling"), power(c, Fraction(1, 2)))), -2)
    clamped = call(
        OPERATIONS["minimum"],
        call(OPERATIONS["maximum"], mul(c, scale), _scalar("min_lm_diagonal")),
        _scalar("max_lm_diagonal"),
    )
    damped = logical_not(equal(_scalar("damped"), ZERO))
    return mul(damped, clamped, power(mul(_scalar("radius"), scale), -1))


def _safe_inverse(e: Expr) -> Expr:
    """1/e, and 1 where e is not positive: an element that no residual depends on has a zero gradient, and stays."""
    positive = logical_not(less_equal(e, ZERO))
    return where(positive, power(e, -1), ONE)


def _chosen(e: Expr, diagonal: bool) -> Expr:
    """The preconditioner, or the identity when there shall be none."""
    return where(logical_not(equal(_scalar("preconditioned"), ZERO)), e, ONE if diagonal else ZERO)


def inverse_of_symmetric(matrix: dict[tuple[int, int], Expr], n: int) -> dict[tuple[int, int], Expr]:
    """The inverse of a positive semidefinite matrix given by its upper triangle, by LDL^T; zero pivots count as 1."""
    entry = {(b, a): e for (a, b), e in matrix.items()}
    lower: dict[tuple[int, int], Expr] = {}
    pivot: list[Expr] = []
    for k in range(n):
        d = subtract(entry[k, k], add(*(mul(power(lower[k, m], 2), pivot[m]) for m in range(k))))
        # Below the rounding of the diagonal entry a pivot is noise: the block is singular there.
        sound = logical_not(less_equal(d, mul(const(2**-20), entry[k, k])))
        d = where(sound, d, where(logical_not(less_equal(entry[k, k], ZERO)), entry[k, k], ONE))
        pivot.append(d)
        for a in range(k + 1, n):
            s = subtract(entry[a, k], add(*(mul(lower[a, m], lower[k, m], pivot[m]) for m in range(k))))
            lower[a, k] = mul(sound, s, power(d, -1))
    # Rows of L^-1, then A^-1 = L^-T D^-1 L^-1.
    inverse_lower: dict[tuple[int, int], Expr] = {}
    for a in range(n):
        inverse_lower[a, a] = ONE
        for b in range(a):
            inverse_lower[a, b] = negate(add(*(mul(lower[a, m], inverse_lower[m, b]) for m in range(b, a))))
    return {
        (a, b): add(*(mul(inverse_lower[m, a], inverse_lower[m, b], power(pivot[m], -1)) for m in range(b, n)))
        for a in range(n)
        for b in range(a, n)
    }


# -- the outer step ----------------------------------------------------------------------------------------------


def step(unknowns: Sequence[Field]) -> list[Routine]:
    """candidate = x + delta, with ||delta||^2 and ||x||^2."""
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        elements = [(u, a) for u in group for a in range(u.channels)]
        stores = tuple(
            Store(at(candidate(u), domain, a), add(here(u, a), here(vector("delta", u), a))) for u, a in elements
        )
        reductions = (
            Reduce("step_squared", add(*(power(here(vector("delta", u), a), 2) for u, a in elements))),
            Reduce("x_squared", add(*(power(here(u, a), 2) for u, a in elements))),
        )
        routines.append(Routine(f"step_{n}", domain, stores, reductions))
    return routines
