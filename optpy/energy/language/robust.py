"""``op.robust``: residuals whose cost grows more slowly than their square.

While an energy is written, each entry of a robust residual is a call of a marker: ``robust_huber(k, s, r_1, ...)``.
``split`` checks how the markers are used, and puts in their place what the cost sums (``losses.summed``) and what is
linearised (``losses.linearised``): the two faces of ``ir.Residual``.

Reference: B. Triggs et al., "Bundle Adjustment - A Modern Synthesis", 1999, section 4.3, without the second-order
correction: iteratively reweighted least squares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final, NoReturn, final

from optpy import ir
from optpy.energy.language.expression import Expression, Operand, as_expression, merged
from optpy.energy.language.index import describe
from optpy.energy.language.losses import LOSSES, linearised, summed
from optpy.errors import EnergyError, InternalError, Location
from optpy.symbolic.expr import ONE, ZERO, Call, Const, Expr, Operation, Product, Sum, Var, call, const, mul, power
from optpy.symbolic.number import nearest_float
from optpy.symbolic.operations import absolute
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import substitute

_PREFIX: Final = "robust_"


def robust(r: Operand, loss: str, scale: Operand = 1) -> Expression:
    """A residual with the cost ``1/2 s^2 rho(|r|^2 / s^2)`` in place of ``1/2 |r|^2``, s being the scale.

    The losses, with z = |r|^2 / s^2; the first five are those of ``scipy.optimize.least_squares``, where s is
    ``f_scale``:

        linear          z
        huber           z up to 1, then 2 sqrt(z) - 1
        soft_l1         2 (sqrt(1 + z) - 1)
        cauchy          log(1 + z)
        arctan          atan(z)
        tukey           (1 - (1 - z)^3) / 3 up to 1, then 1/3
        geman_mcclure   z / (1 + z)

    All are z for small z: residuals well below the scale count as if they were plain. A solve linearises
    ``sqrt(rho'(z)) r`` with the weight held constant, so that J^T F is the gradient of the cost, and J^T J is
    ``rho'(z)`` times that of r (iteratively reweighted least squares).

    The result is a residual of an energy: a term, an entry of a list or of ``op.vector``, an arm of ``op.where``. It
    may be multiplied by what reads no unknown, but under ``op.stop_gradient`` (the cost is then multiplied by the
    square), and neither added to something nor taken apart.

    Args:
        r: a scalar; or a vector or matrix, or a list such as ``[r1, r2]``, which is the vector of its entries. It is
            one residual, whose norm ``|r| = sqrt(r1^2 + r2^2)`` counts: one outlier among its entries weakens them
            all. To treat each entry by itself: ``op.vector(*(op.robust(x, "huber") for x in r))``.
        loss: its name.
        scale: where residuals begin to count as outliers, in the units of r: a positive number or param, or a scalar
            expression without unknowns. Of an expression only the magnitude counts; where its square is 0 in the
            arithmetic of the solve, the cost is not finite.

    Returns:
        Expression: of the shape of r. ``energy.residuals`` shows it as ``s sqrt(rho(z)) r / |r|``: half the sum of
        the squares is the cost.

    Raises:
        EnergyError: there is no such loss, the scale is no positive scalar or depends on unknowns, or r or the scale is
            robust already.
        DataError: where data is bound: a param that is the scale is not positive, or the scale so small that its square
            vanishes in the dtype of the solve.

    Reference: B. Triggs et al., "Bundle Adjustment - A Modern Synthesis", 1999, section 4.3.
    """
    e, s = as_expression(r), as_expression(scale)
    if loss not in tuple(LOSSES):
        known = ", ".join(map(repr, LOSSES))
        raise EnergyError(f"op.robust knows no loss {describe(loss)}; there are {known}", Location.of_caller())
    _check_scale(s)
    if _markers((*e.components, *s.components)):
        raise EnergyError(
            "op.robust takes a plain residual and a plain scale: this one is robust already", Location.of_caller()
        )
    marker = _marker(loss, len(e.components))
    block = (absolute(s.components[0]), *e.components)
    components = tuple(call(marker, const(k), *block) for k in range(len(e.components)))
    return Expression(e.shape, components, merged((e, s)))


def _check_scale(s: Expression) -> None:
    if s.shape:
        raise EnergyError(
            f"the scale of op.robust is a scalar, not of shape {s.shape}; entries with scales of their own: "
            "op.vector(op.robust(r[0], loss, s[0]), ...)",
            s.location,
        )
    (value,) = s.components
    if isinstance(value, Const) and value.value <= 0:
        raise EnergyError(f"the scale of op.robust is positive, not {float(value.value):g}", Location.of_caller())
    if unknown := _unknown_in(value):
        raise EnergyError(
            f"the scale of op.robust depends on the unknown '{unknown}': make it of data and params, or hold it "
            "constant within an iteration by op.stop_gradient(scale)",
            s.location,
        )


def _unknown_in(root: Expr) -> str | None:
    """The name of an unknown that e depends on, unless under ``stop_gradient``."""
    pending, seen = [root], {root}
    while pending:
        e = pending.pop()
        if isinstance(e, Var) and ir.is_unknown(e.key):
            return str(e.key.field)
        if isinstance(e, Var) and isinstance(e.key, ir.Access) and e.key.field.definition is not None:
            pending += e.key.field.definition.linearised
        if not (isinstance(e, Call) and e.op.name == "stop_gradient"):
            pending += [c for c in e.children if c not in seen]
            seen.update(e.children)
    return None


def scales_of(label: str, e: Expression) -> list[ir.Scale]:
    """The scales of a residual as written, expressions apart."""
    found: dict[ir.Scalar | float, None] = {}
    for m in _markers(e.components):
        scale = m.args[1]
        if isinstance(scale, Const):
            found[nearest_float(scale.value)] = None
        for leaf in (scale, *scale.children) if isinstance(scale, Var | Call) else ():
            if isinstance(leaf, Var) and isinstance(leaf.key, ir.Scalar) and absolute(leaf) is absolute(scale):
                found[leaf.key] = None
    return [ir.Scale(label, value, e.location) for value in found]


# -- markers -------------------------------------------------------------------------------------------------------


@cache
def _marker(loss: str, entries: int) -> Operation:
    """Entry k of a robust block: called with k, the scale, and the entries of the plain residual."""

    def refuse(*_: object) -> NoReturn:
        raise InternalError(f"a robust residual ({loss}) was not split into its two faces")

    def simplify(k: Expr, scale: Expr, *r: Expr) -> Expr | None:
        if all(e is ZERO for e in r):
            return ZERO
        if isinstance(scale, Const) and all(isinstance(e, Const) for e in r):
            return summed(loss, scale, r)[_number(k)]
        return None

    interval = (0.05, 4.0)
    return Operation(f"{_PREFIX}{loss}", 2 + entries, refuse, refuse, (interval,) * (2 + entries), simplify=simplify)


def _number(k: Expr) -> int:
    assert isinstance(k, Const)
    return int(k.value)


def _is_marker(e: Expr) -> bool:
    return isinstance(e, Call) and e.op.name.startswith(_PREFIX)


def _markers(roots: Iterable[Expr]) -> list[Call]:
    return [e for e in topological(roots) if isinstance(e, Call) and _is_marker(e)]


def refuse_robust(what: str, e: Expression) -> None:
    """Raise for an expression that is no residual.

    Raises:
        EnergyError: a robust residual stands in it.
    """
    if _markers(e.components):
        raise EnergyError(f"{what} contains op.robust(...), which makes residuals, not numbers", e.location)


def split(label: str, components: Sequence[Expr], location: Location | None) -> tuple[list[Expr], list[Expr]]:
    """A residual's components as the cost sums them, and as they are linearised.

    Raises:
        EnergyError: a robust residual is used as if it were a number, or a block of them is taken apart.
    """
    markers = _markers(components)
    if not markers:
        return list(components), list(components)
    reader = _Reader(label, components, location)
    reader.check_blocks(Counter((f, m) for c in components for f, m in reader.parts(c) if m is not None))
    faces: list[list[Expr]] = []
    for face in (summed, linearised):
        replacement: dict[Expr, Expr] = {}
        for m in markers:
            k, scale, *r = m.args
            replacement[m] = face(m.op.name.removeprefix(_PREFIX), scale, r)[_number(k)]
        faces.append(substitute(components, replacement))
    return faces[0], faces[1]


_Part = tuple[Expr, Call | None]
"""A factor, and the marker that it multiplies (None: nothing robust)."""


@final
class _Reader:
    """Takes components apart into plain and robust residuals of which at most one is not 0 at any point."""

    def __init__(self, label: str, components: Sequence[Expr], location: Location | None) -> None:
        self._label = label
        self._location = location
        self._robust: set[Expr] = set()
        for e in topological(components):
            if _is_marker(e) or any(c in self._robust for c in e.children):
                self._robust.add(e)

    def parts(self, e: Expr) -> list[_Part]:
        """The summands of e."""
        if e not in self._robust:
            return [(_guard(e), None)]
        if isinstance(e, Product):
            return self._product(e)
        if isinstance(e, Sum):
            return self._sum(e)
        assert isinstance(e, Call)
        if not _is_marker(e):
            self._refuse(f"stands inside {e.op.name}(...): apply that to the residual, inside op.robust")
        return [(ONE, e)]

    def _product(self, e: Product) -> list[_Part]:
        (base, exponent), *others = [f for f in e.factors if f[0] in self._robust]
        if others or exponent != 1:
            self._refuse("is multiplied by another one, or raised to a power")
        inner = self.parts(base)
        factors = [power(b, x) for b, x in e.factors if b is not base]
        for f in factors:
            if not f.boolean and (unknown := _unknown_in(f)):
                self._refuse(
                    f"is multiplied by what depends on the unknown '{unknown}': put the factor inside, "
                    "op.robust(factor * r, ...)"
                )
        return [(mul(*factors, f), m) for f, m in inner]

    def _sum(self, e: Sum) -> list[_Part]:
        terms = [[(mul(const(c), f), m) for f, m in self.parts(t)] for c, t in e.terms]
        if e.constant != 0:
            terms.append([(ONE, None)])
        for n, term in enumerate(terms):
            for f, m in term:
                for g, other in (p for t in terms[:n] for p in t):
                    if (m is not None or other is not None) and mul(_guard(f), _guard(g)) is not ZERO:
                        self._refuse(
                            "is added to something: each residual is a term, an entry of a list or of op.vector, or "
                            "an arm of op.where, by itself"
                        )
        return [p for term in terms for p in term]

    def check_blocks(self, parts: Counter[tuple[Expr, Expr]]) -> None:
        """Every block is there as a whole, all entries with one factor."""
        for (factor, m), n in parts.items():
            assert isinstance(m, Call)
            whole = [call(m.op, const(k), *m.args[1:]) for k in range(len(m.args) - 2)]
            if any(parts[factor, e] != n for e in whole):
                self._refuse(
                    "of a vector is taken apart, or its entries get factors of their own: the norm of all "
                    f"{len(whole)} entries counts. For each entry by itself: "
                    "op.vector(*(op.robust(x, loss, scale) for x in r))"
                )

    def _refuse(self, what: str) -> NoReturn:
        raise EnergyError(f"in the residual '{self._label}', op.robust(...) {what}", self._location)


def _guard(e: Expr) -> Expr:
    """The condition outside which e is 0 by its form."""
    if isinstance(e, Sum) and e.constant == 0 and len(e.terms) == 1:
        e = e.terms[0][1]
    if e.boolean:
        return e
    return mul(*e.guards) if isinstance(e, Product) else ONE
