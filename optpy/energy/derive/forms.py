"""The forms of expressions: what two of them have in common where one is the other at another point.

``B(X[i, j], X[i, j + 1])`` and ``B(X[i, j - 1], X[i, j])`` have one form, and stand at points one apart. Forms are
numbers, given by structure: equal numbers are equal expressions, but for a shift and a sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, final

from optpy.ir import Access, InBounds, IndexValue, LoopVariable, Role, Scalar
from optpy.symbolic.affine import Affine
from optpy.symbolic.expr import Call, Const, Expr, Number, Product, Sum, Var, add, const
from optpy.symbolic.order import topological

Place = tuple[tuple[LoopVariable, int], ...]
"""For each loop variable that is read at, an offset from it; ordered by the variables' names."""


@final
@dataclass(frozen=True, slots=True)
class ShiftedForm:
    """The form of an expression.

    Attributes:
        number: the same for all expressions that are this one elsewhere, or its negative.
        sign: 1, or -1 of the negative.
        at: where it stands: the least offset of each loop variable. Equal expressions differ in nothing else.
    """

    number: int
    sign: int
    at: Place

    def seen_from(self, at: Place) -> Place:
        """The place where it stands, seen from a point with all its loop variables."""
        origin = dict(at)
        return tuple((v, d - origin[v]) for v, d in self.at)


@final
@dataclass(frozen=True, slots=True)
class Part:
    """A term of a sum, or a factor of a product.

    Attributes:
        value: the term without its number, or the base of the factor.
        number: what the term is multiplied by, or the exponent of the factor.
        form: of the value.
    """

    value: Expr
    number: Number
    form: ShiftedForm


@final
class Forms:
    """The forms of all nodes below some roots.

    Attributes:
        of: the form of each node that has one: all it reads is at constant distances from loop variables.
        parts: of each sum and product all of whose parts have forms.
    """

    def __init__(self, roots: Iterable[Expr]) -> None:
        self.of: dict[Expr, ShiftedForm] = {}
        self.parts: dict[Expr, tuple[Part, ...]] = {}
        self._numbers: dict[object, int] = {}
        for node in topological(roots):
            found = self._form(node)
            if found is not None:
                self.of[node] = found

    def _form(self, node: Expr) -> ShiftedForm | None:
        if isinstance(node, Const):
            return self._numbered(("const", node.value), 1, ())
        if isinstance(node, Var):
            return self._leaf(node.key)
        if any(c not in self.of for c in node.children):
            return None
        if isinstance(node, Sum):
            return self._sum(node)
        if isinstance(node, Product):
            return self._product(node)
        assert isinstance(node, Call)
        even = node.op.name == "abs"
        parts = [Part(a, 1, self.of[a]) for a in node.args]
        return self._of_parts(("call", node.op.name), [(p, 1 if even else p.form.sign) for p in parts])

    def _numbered(self, key: object, sign: int, at: Place) -> ShiftedForm:
        return ShiftedForm(self._numbers.setdefault(key, len(self._numbers)), sign, at)

    def _leaf(self, key: Any) -> ShiftedForm | None:
        match key:
            case Scalar():
                return self._numbered(key, 1, ())
            case IndexValue():
                return self._indexed(("value",), (key.index,))
            case InBounds():
                return self._indexed(("in bounds", key.dim), (key.index,))
            case Access() if key.field.role is not Role.TANGENT:
                return self._indexed((key.field, key.channel), key.index)
        return None

    def _indexed(self, what: tuple[object, ...], index: tuple[Affine, ...]) -> ShiftedForm | None:
        """The form of what is read at an index, each of whose axes is a loop variable plus a number, or a number."""
        offsets: dict[LoopVariable, int] = {}
        from_least: list[Affine] = []
        for a in index:
            if not a.atoms:
                continue
            (v, *others) = a.atoms
            if others or not isinstance(v, LoopVariable) or a.offset_from(v) is None:
                return None
            offsets[v] = min(a.constant, offsets.get(v, a.constant))
        for a in index:
            from_least.append(a + -sum(offsets[v] for v in offsets if a.coefficient(v)))
        return self._numbered((*what, *from_least), 1, _ordered(offsets))

    def _sum(self, node: Sum) -> ShiftedForm:
        parts = self.parts[node] = tuple(self._terms(node))
        if len(parts) == 1 and abs(node.terms[0][0]) == 1:
            form = parts[0].form
            return replace(form, sign=form.sign if node.terms[0][0] > 0 else -form.sign)
        at = least(p.form for p in parts)
        ordered = sorted(parts, key=lambda p: _order(p, at))
        first = next((p for p in ordered if p.form.at), ordered[0])
        sign = 1 if first.number * first.form.sign > 0 else -1
        terms = [(p.form.number, p.number * p.form.sign * sign, p.form.seen_from(at)) for p in ordered]
        return self._numbered(("sum", *terms), sign, at)

    def _terms(self, node: Sum) -> Iterable[Part]:
        """The terms, a number beside them as a multiple of 1. ``i + 1`` is ``i`` at another point."""
        constant = node.constant
        counted = [(c, e) for c, e in node.terms if isinstance(e, Var) and isinstance(e.key, IndexValue)]
        moved: dict[Expr, int] = {}
        if len(counted) == 1 and self.of[counted[0][1]].at and not isinstance(counted[0][0], float):
            ((c, counting),) = counted
            if not isinstance(constant, float):
                moved[counting] = int(Fraction(constant) / Fraction(c) // 1)
                constant = constant - c * moved[counting]
        for c, e in node.terms:
            form = self.of[e]
            if e in moved:
                form = ShiftedForm(form.number, form.sign, tuple((v, d + moved[e]) for v, d in form.at))
                yield Part(add(e, const(moved[e])), c, form)
            else:
                yield Part(e, c, form)
        if constant != 0:
            one = const(1)
            yield Part(one, constant, self._numbered(("const", 1), 1, ()))

    def _product(self, node: Product) -> ShiftedForm:
        parts = self.parts[node] = tuple(Part(b, x, self.of[b]) for b, x in node.factors)
        at = least(p.form for p in parts)
        ordered = sorted(parts, key=lambda p: _order(p, at))
        # The sign of what a whole power is taken of is a sign of the product, or none at all.
        form = self._of_parts(("product",), [(p, 1 if type(p.number) is int else p.form.sign) for p in ordered])
        odd = [p for p in parts if type(p.number) is int and p.number % 2]
        return form if sum(p.form.sign < 0 for p in odd) % 2 == 0 else ShiftedForm(form.number, -1, form.at)

    def _of_parts(self, what: tuple[object, ...], signed: list[tuple[Part, int]]) -> ShiftedForm:
        at = least(p.form for p, _ in signed)
        parts = [(p.form.number, p.number, sign, p.form.seen_from(at)) for p, sign in signed]
        return self._numbered((*what, *parts), 1, at)


def _ordered(offsets: dict[LoopVariable, int]) -> Place:
    return tuple(sorted(offsets.items(), key=lambda x: x[0].name))


def least(forms: Iterable[ShiftedForm]) -> Place:
    """The least offset of each loop variable: where what is made of them stands."""
    offsets: dict[LoopVariable, int] = {}
    for form in forms:
        for v, d in form.at:
            offsets[v] = min(d, offsets.get(v, d))
    return _ordered(offsets)


def _order(part: Part, at: Place) -> tuple[int, Number, tuple[int, ...]]:
    """The order of terms and of factors: the same wherever they stand. Numbers of terms may differ by a sign."""
    return part.form.number, max(part.number, -part.number), tuple(d for _, d in part.form.seen_from(at))
