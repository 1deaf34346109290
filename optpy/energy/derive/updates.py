"""The vector updates of preconditioned conjugate gradients and of the outer step, as routines.

They are those of ``solver/pcg.py`` (Nocedal & Wright, algorithm 5.3) between two products with J^T J, each
fused into one pass over memory. ``alpha``, ``beta`` and the damping come as run-time scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from optpy.energy.derive.retraction import retraction
from optpy.energy.derive.routines import Fixed, by_grid
from optpy.energy.derive.vectors import AP, DELTA, D, G, M, P, R, Z, at, block_channel, candidate, here, vector
from optpy.ir import (
    VECTOR_UPDATES,
    Assignment,
    Field,
    Group,
    Preconditioning,
    Reduce,
    Routine,
    Scalar,
    Task,
    VectorKind,
    canonical_domain,
    tangent,
)
from optpy.symbolic.expr import ZERO, Expr, add, logical_not, mul, negate, power, subtract, var

SOLVER_SCALARS = (
    "alpha", "beta", "omega", "radius", "min_lm_diagonal", "max_lm_diagonal", "jacobi_scaling", "damped",
    "preconditioned", "noise",
)  # fmt: skip
"""Run-time numbers of the solver, in the order in which native code receives them."""


def run_time(name: str) -> Expr:
    """One of ``SOLVER_SCALARS``."""
    return var(Scalar(name, of_solver=True))


ALPHA, BETA, OMEGA = run_time("alpha"), run_time("beta"), run_time("omega")

Preconditioned = Callable[[Field, Sequence[Expr]], list[Expr]]

Built = tuple[dict[VectorKind, list[Expr]], list[Expr]]
"""The values that a vector update stores, by vector, and the summands of its dot product."""

Builder = Callable[[Field, Preconditioned], Built]


def _by_diagonal(unknown: Field, r: Sequence[Expr]) -> list[Expr]:
    m = vector(M, unknown)
    return [mul(here(m, a), e) for a, e in enumerate(r)]


def _by_blocks(unknown: Field, r: Sequence[Expr]) -> list[Expr]:
    m = vector(M, unknown, blocks=True)
    n = range(unknown.channels)
    return [add(*(mul(here(m, block_channel(unknown, a, b)), r[b]) for b in n)) for a in n]


def pcg_routines(unknowns: Sequence[Field], blocks: bool) -> dict[Group, list[Routine]]:
    """The vector updates of one PCG iteration: ``start``, ``direction``, ``update``, ``flush``, ``restart``."""
    builders = dict(zip(VECTOR_UPDATES, (_start, _direction, _update, _flush, _restart), strict=True))
    precondition = _by_blocks if blocks else _by_diagonal
    return _updates(unknowns, builders, precondition, Preconditioning.BLOCKS if blocks else Preconditioning.DIAGONAL)


def smoothed_routines(unknowns: Sequence[Field]) -> dict[Group, list[Routine]]:
    """The vector updates of one PCG iteration whose z is stored, and smoothed before and after it is corrected.

    ``start``, ``update`` and ``restart`` end with the first sweep of the damped diagonal, z = omega M r; ``smooth`` is
    the last one; ``power`` is a step of the power iteration for the largest eigenvalue of M A. ``norms`` sums r.r,
    and g.g, which is that of the start.
    """
    builders = {
        Task.START: _first_sweep(_start),
        Task.DIRECTION: _direction_stored,
        Task.UPDATE: _first_sweep(_update),
        Task.FLUSH: _flush,
        Task.RESTART: _first_sweep(_restart),
        Task.SMOOTH: _smooth,
        Task.POWER: _power,
    }
    return {
        **_updates(unknowns, builders, _by_diagonal, Preconditioning.SMOOTHED),
        Group.NORMS_SMOOTHED: _residual_norms(unknowns, Group.NORMS_SMOOTHED),
    }


def _residual_norms(unknowns: Sequence[Field], norms: Group) -> list[Routine]:
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        squares = {kind: add(*(power(e, 2) for u in group for e in _channels(kind, u))) for kind in (R, G)}
        reductions = tuple(Reduce(f"{kind}_squared", e) for kind, e in squares.items())
        routines.append(Routine(f"pcg_{norms}_{n}", canonical_domain(dims), reductions=reductions))
    return routines


def assembled_routines(unknowns: Sequence[Field]) -> dict[Group, list[Routine]]:
    """The vector updates of one PCG iteration whose z native code makes, all of it.

    ``norms`` is as in ``smoothed_routines``.
    """
    builders = {
        Task.START: _without_dot(_start),
        Task.DIRECTION: _direction_stored,
        Task.UPDATE: _without_dot(_update),
        Task.FLUSH: _flush,
        Task.RESTART: _without_dot(_restart),
    }
    return {
        **_updates(unknowns, builders, _by_diagonal, Preconditioning.ASSEMBLED),
        Group.NORMS_ASSEMBLED: _residual_norms(unknowns, Group.NORMS_ASSEMBLED),
    }


def _updates(
    unknowns: Sequence[Field],
    builders: Mapping[Task, Builder],
    precondition: Preconditioned,
    preconditioning: Preconditioning,
) -> dict[Group, list[Routine]]:
    result: dict[Group, list[Routine]] = {Group.of(task, preconditioning): [] for task in builders}
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        for name, build in zip(result, builders.values(), strict=True):
            stores: list[Assignment] = []
            dots: list[Expr] = []
            for u in group:
                values, dot = build(u, precondition)
                stores.extend(
                    Assignment(at(vector(kind, u), domain, a), e)
                    for kind, es in values.items()
                    for a, e in enumerate(es)
                )
                dots.extend(dot)
            reductions = (Reduce("rz", add(*dots)),) if dots else ()
            result[name].append(Routine(f"pcg_{name}_{n}", domain, tuple(stores), reductions))
    return result


def _channels(kind: VectorKind, u: Field) -> list[Expr]:
    return [here(vector(kind, u), a) for a in range(u.channels)]


def _dot(x: Sequence[Expr], y: Sequence[Expr]) -> list[Expr]:
    return [mul(a, b) for a, b in zip(x, y, strict=True)]


def _start(u: Field, precondition: Preconditioned) -> Built:
    """delta = 0, r = -g, p = 0 (the first direction is z); r.z with z = M r."""
    r = [negate(g) for g in _channels(G, u)]
    zero: list[Expr] = [ZERO] * u.channels
    return {R: r, DELTA: zero, P: zero}, _dot(r, precondition(u, r))


def _direction(u: Field, precondition: Preconditioned) -> Built:
    """delta += alpha p, then p = z + beta p: the step of the last iteration and the direction of the next."""
    p, delta = _channels(P, u), _channels(DELTA, u)
    z = precondition(u, _channels(R, u))
    return {
        DELTA: [add(d, mul(ALPHA, x)) for d, x in zip(delta, p, strict=True)],
        P: [add(a, mul(BETA, x)) for a, x in zip(z, p, strict=True)],
    }, []


def _update(u: Field, precondition: Preconditioned) -> Built:
    """r -= alpha Ap; r.z with z = M r."""
    r = [subtract(a, mul(ALPHA, b)) for a, b in zip(_channels(R, u), _channels(AP, u), strict=True)]
    return {R: r}, _dot(r, precondition(u, r))


def _flush(u: Field, precondition: Preconditioned) -> Built:
    """delta += alpha p."""
    return {DELTA: [add(d, mul(ALPHA, x)) for d, x in zip(_channels(DELTA, u), _channels(P, u), strict=True)]}, []


def _restart(u: Field, precondition: Preconditioned) -> Built:
    """r = -g - A delta, with A delta in Ap: the true residual in place of the recurrence; r.z."""
    r = [negate(add(g, a)) for g, a in zip(_channels(G, u), _channels(AP, u), strict=True)]
    return {R: r}, _dot(r, precondition(u, r))


def _first_sweep(build: Builder) -> Builder:
    """The update, and then z = omega M r."""

    def built(u: Field, precondition: Preconditioned) -> Built:
        values, _ = build(u, precondition)
        return {**values, Z: [mul(OMEGA, e) for e in precondition(u, values[R])]}, []

    return built


def _without_dot(build: Builder) -> Builder:
    """The update alone: r.z is computed where z is."""

    def built(u: Field, precondition: Preconditioned) -> Built:
        return build(u, precondition)[0], []

    return built


def _direction_stored(u: Field, precondition: Preconditioned) -> Built:
    """As ``_direction``, with z from memory."""
    return _direction(u, lambda unknown, r: _channels(Z, unknown))


def _smooth(u: Field, precondition: Preconditioned) -> Built:
    """z += omega M (r - A z), with A z in Ap; r.z."""
    r = _channels(R, u)
    rest = precondition(u, [subtract(a, b) for a, b in zip(r, _channels(AP, u), strict=True)])
    z = [add(a, mul(OMEGA, e)) for a, e in zip(_channels(Z, u), rest, strict=True)]
    return {Z: z}, _dot(r, z)


def _power(u: Field, precondition: Preconditioned) -> Built:
    """z = omega M A z, with A z in Ap; z.z."""
    z = [mul(OMEGA, e) for e in precondition(u, _channels(AP, u))]
    return {Z: z}, _dot(z, z)


# -- the outer step ----------------------------------------------------------------------------------------------


def step(unknowns: Sequence[Field], fixed: Fixed) -> list[Routine]:
    """candidate = x + delta (on a manifold its retraction), with ||delta||^2, ||x||^2 and delta.D delta.

    Both norms are of the elements that are solved for: delta is 0 at the fixed ones.

    On a manifold the step has the length of its tangent coordinates, in radians for angles, and x that of what is
    stored: 1 for a rotation or a unit vector, as if it were a turn of 1 radian.
    """
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        stores = tuple(Assignment(at(candidate(u), domain, a), e) for u in group for a, e in enumerate(retraction(u)))
        squares = {u: [power(e, 2) for e in _channels(DELTA, tangent(u))] for u in group}
        damped = [mul(d, e) for u in group for d, e in zip(_channels(D, tangent(u)), squares[u], strict=True)]
        free = {u: logical_not(fixed.get(tangent(u), ZERO)) for u in group}
        x_squares = [mul(free[u], power(here(u, a), 2)) for u in group for a in range(u.channels)]
        reductions = (
            Reduce("step_squared", add(*(e for u in group for e in squares[u]))),
            Reduce("x_squared", add(*x_squares)),
            Reduce("damped_square", add(*damped)),
        )
        routines.append(Routine(f"{Group.STEP}_{n}", domain, stores, reductions))
    return routines
