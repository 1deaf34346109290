"""The damping D of Levenberg-Marquardt and the preconditioner M, from the diagonal or the blocks C of J^T J."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from optpy.energy.derive.routines import by_grid
from optpy.energy.derive.updates import run_time
from optpy.energy.derive.vectors import C, D, M, at, block_channel, here, vector
from optpy.ir import Assignment, Field, Group, Routine, canonical_domain
from optpy.symbolic.expr import ONE, ZERO, Expr, add, call, logical_not, mul, negate, power, subtract, where
from optpy.symbolic.operations import OPERATIONS, equal, less_equal


def damping(unknowns: Sequence[Field], blocks: bool) -> list[Routine]:
    """D = clamp(c s^2, min, max) / (radius s^2) with c = diag(J^T J) and s = 1 / (1 + sqrt(c)) (Ceres' column scaling),
    and M, the inverse of the diagonal or of the blocks of J^T J + D."""
    routines = []
    for n, (dims, group) in enumerate(by_grid(unknowns).items()):
        domain = canonical_domain(dims)
        stores: list[Assignment] = []
        for u in group:
            c = vector(C, u, blocks)
            channels = range(u.channels)
            diagonal = [here(c, block_channel(u, a, a) if blocks else a) for a in channels]
            d = [_damping(e) for e in diagonal]
            stores.extend(Assignment(at(vector(D, u), domain, a), e) for a, e in enumerate(d))
            if blocks:
                matrix = {(a, b): here(c, block_channel(u, a, b)) for a in channels for b in channels if a <= b}
                for a in channels:
                    matrix[a, a] = add(matrix[a, a], d[a])
                inverse = inverse_of_symmetric(matrix, u.channels, run_time("noise"))
                m = vector(M, u, blocks=True)
                stores.extend(
                    Assignment(at(m, domain, block_channel(u, a, b)), _chosen(e, a == b))
                    for (a, b), e in inverse.items()
                )
            else:
                stores.extend(
                    Assignment(at(vector(M, u), domain, a), _chosen(_safe_inverse(add(e, d[a])), True))
                    for a, e in enumerate(diagonal)
                )
        name = Group.DAMPING_BLOCKS if blocks else Group.DAMPING
        routines.append(Routine(f"{name}_{n}", domain, tuple(stores)))
    return routines


def _damping(c: Expr) -> Expr:
    scale = power(add(ONE, mul(run_time("jacobi_scaling"), power(c, Fraction(1, 2)))), -2)
    clamped = call(
        OPERATIONS["minimum"],
        call(OPERATIONS["maximum"], mul(c, scale), run_time("min_lm_diagonal")),
        run_time("max_lm_diagonal"),
    )
    damped = logical_not(equal(run_time("damped"), ZERO))
    return mul(damped, clamped, power(mul(run_time("radius"), scale), -1))


def _safe_inverse(e: Expr) -> Expr:
    """1/e, and 1 where e is not positive: an element that no residual depends on has a zero gradient, and stays."""
    positive = logical_not(less_equal(e, ZERO))
    return where(positive, power(e, -1), ONE)


def _chosen(e: Expr, diagonal: bool) -> Expr:
    """The preconditioner, or the identity when there shall be none."""
    return where(logical_not(equal(run_time("preconditioned"), ZERO)), e, ONE if diagonal else ZERO)


def inverse_of_symmetric(matrix: dict[tuple[int, int], Expr], n: int, noise: Expr) -> dict[tuple[int, int], Expr]:
    """The inverse of a positive semidefinite matrix given by its upper triangle, by LDL^T; zero pivots count as 1.

    Args:
        noise: a pivot counts as zero where it is less than so much of its entry of the diagonal.
    """
    entry = {(b, a): e for (a, b), e in matrix.items()}
    lower: dict[tuple[int, int], Expr] = {}
    pivot: list[Expr] = []
    for k in range(n):
        d = subtract(entry[k, k], add(*(mul(power(lower[k, m], 2), pivot[m]) for m in range(k))))
        # Below the rounding of the diagonal entry a pivot is noise: the block is singular there.
        sound = logical_not(less_equal(d, mul(noise, entry[k, k])))
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
