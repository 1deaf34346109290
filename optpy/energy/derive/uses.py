"""The parts of sums and products by which a common formula is found, and the parts beside them that belong to it.

Sums and products are flattened: ``B[i, j] - B[i, j + 1]`` has the terms of both, if B is a sum. So a formula may be
some of the parts of an expression, which stand beside each other in the same way wherever it is written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from optpy.energy.derive.forms import Forms, Part
from optpy.ir import InBounds
from optpy.symbolic.expr import Expr, Product, Sum, Var, linear, mul, power
from optpy.symbolic.number import divided


@final
@dataclass(frozen=True, slots=True)
class Use:
    """A part of an expression, by which others beside it are looked for.

    Attributes:
        within: the expression.
        part: of it.
        powered: whether what is looked for is the power that stands there, not only its base.
    """

    within: Expr
    part: Part
    powered: bool = False

    @property
    def value(self) -> Expr:
        """The part, or its power, as an expression by itself."""
        return power(self.part.value, self.part.number) if self.powered else self.part.value


def with_neighbours(uses: Sequence[Use], forms: Forms) -> Iterator[tuple[Use, tuple[Part, ...]]]:
    """Each use with all parts that stand beside it in the same way in all, itself first; none: it stands alone."""
    beside = [_beside(u, forms) for u in uses]
    exponents = {u.part.number for u in uses if isinstance(u.within, Product)}
    if None in beside or len({type(u.within) for u in uses}) > 1 or len(exponents) > 1:
        yield from ((u, ()) for u in {u.part.value: u for u in uses}.values())
        return
    tables = [b for b in beside if b is not None]
    taken = {(u.within, u.part.value) for u in uses}
    kept: list[object] = []
    for key in tables[0]:
        found = [(u.within, t[key].value) for u, t in zip(uses, tables, strict=True) if key in t]
        if len(found) == len(uses) == len(set(found)) and taken.isdisjoint(found):
            kept.append(key)
            taken.update(found)
    if any(isinstance(u.within, Product) and not _selects_nothing_else(u, forms, taken) for u in uses):
        kept = [key for key in kept if not tables[0][key].value.boolean]
    for use, table in zip(uses, tables, strict=True):
        yield use, (use.part, *(table[key] for key in kept)) if kept or use.powered else ()


def _beside(use: Use, forms: Forms) -> dict[object, Part] | None:
    """The other parts that an intermediate may have, by what is equal where they stand beside equal ones."""
    parts = forms.parts.get(use.within)
    if parts is None:
        return None
    own, at = use.part, dict(use.part.form.at)
    found: dict[object, Part] = {}
    for p in parts:
        if p is own or p.value not in use.within.children or any(v not in at for v, _ in p.form.at):
            continue
        seen = p.form.seen_from(own.form.at)
        if isinstance(use.within, Sum):
            ratio = divided(p.number * p.form.sign, own.number * own.form.sign)
            found[p.form.number, ratio, seen] = p
        elif not is_bound(p.value) and (p.value.boolean or not own.value.boolean):
            sign = p.form.sign if type(p.number) is not int else 1
            found[p.form.number, p.number, sign, seen] = p
    return found


def _selects_nothing_else(use: Use, forms: Forms, taken: Collection[tuple[Expr, Expr]]) -> bool:
    """Whether no factor beside an intermediate needs the conditions within it: those that are finite do not."""
    rest = (p for p in forms.parts[use.within] if (use.within, p.value) not in taken)
    return all(p.value.boolean or (isinstance(p.value, Var) and p.value.finite and p.number == 1) for p in rest)


def joined(use: Use, parts: Sequence[Part]) -> Expr:
    """The parts as an expression, to be multiplied by the number of the first one."""
    if not parts:
        return use.part.value
    if isinstance(use.within, Sum):
        return linear(0, [(divided(p.number, use.part.number), p.value) for p in parts])
    return mul(*(power(p.value, p.number) for p in parts))


def is_bound(e: Expr) -> bool:
    """Whether an expression is a bounds check."""
    return isinstance(e, Var) and isinstance(e.key, InBounds)
