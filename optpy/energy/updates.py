"""The vector updates of preconditioned conjugate gradients and of the outer step, as routines.

They are the lines of ``solver/pcg.py`` (Nocedal & Wright, algorithm 5.3) between two products with J^T J, each sweep
fused into one pass over memory. ``alpha``, ``beta`` and the damping come as run-time scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ir import Field, Reduce, Routine, Scalar, Store, canonical_domain, tangent
from ..symbolic.expr import (
    ZERO,
    Expr,
    add,
    mul,
    negate,
    power,
    subtract,
    var,
)
from .routines import by_grid
from .tangent import retraction
from .vectors import at, block_channel, block_channels, candidate, here, vector

SOLVER_SCALARS = (
    "alpha", "beta", "radius", "min_lm_diagonal", "max_lm_diagonal", "jacobi_scaling", "damped", "preconditioned",
)  # fmt: skip
"""Run-time numbers of the solver, in the order in which native code receives them."""


def run_time(name: str) -> Expr:
    """One of ``SOLVER_SCALARS``."""
    # The dot keeps them apart from the energy's params, whose names are identifiers.
    return var(Scalar(f"solver.{name}"))


ALPHA, BETA = run_time("alpha"), run_time("beta")

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


# -- the outer step ----------------------------------------------------------------------------------------------


def step(unknowns: Sequence[Field]) -> list[Routine]:
    """candidate = x + delta (on a manifold its retraction), with ||delta||^2 and ||x||^2.

    On a manifold the step has the length of its tangent coordinates, in radians for angles, and x that of what is
    stored: 1 for a rotation or a unit vector, as if it were a turn of 1 radian.
    """
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        stores = tuple(Store(at(candidate(u), domain, a), e) for u in group for a, e in enumerate(retraction(u)))
        step_squares = [power(e, 2) for u in group for e in _channels("delta", tangent(u))]
        x_squares = [power(here(u, a), 2) for u in group for a in range(u.channels)]
        reductions = (Reduce("step_squared", add(*step_squares)), Reduce("x_squared", add(*x_squares)))
        routines.append(Routine(f"step_{n}", domain, stores, reductions))
    return routines
