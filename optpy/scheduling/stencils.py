"""Products with J^T J over grids: whether J, J p, or J^T J itself is stored at each point.

A point of the unknowns is read by the residuals around it, and each product with J^T J computes their entries of J at
each of these points anew, unless they are stored once for each linearisation; and their J p, unless a pass before it
stores that. Where J^T J is stored instead, products read no more than its stencil, which is one for all residuals. What
that takes is counted by ``scheduling.costs``. Where a residual reads so much that the code itself would be long, it
counts alone: n reads take n^2 operations without J p in memory, 2 n with it, and compilers more time than in
proportion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from optpy.energy.derive.contributions import TIMES_JVP
from optpy.energy.derive.gather import gather
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_jacobian
from optpy.energy.derive.normal_stencil import NormalStencil, normal_stencils, stencil_obstacle
from optpy.energy.derive.routines import product_outputs
from optpy.ir import Extent, ResidualSchedule, Role, canonical_domain
from optpy.scheduling.costs import MOST_PAIRS, PRODUCTS, Needed, Work, pays, storing, work
from optpy.symbolic.expr import Expr


def is_stencil(source: LinearisedResidual) -> bool:
    """Whether a residual reads unknowns on its own grid, at constant distances, and nowhere else."""
    domain = source.residual.domain
    dims = tuple(i.dim for i in domain)
    return bool(domain) and all(
        a.field.dims == dims and None not in [x.offset_from(i) for x, i in zip(a.index, domain, strict=True)]
        for a in source.accesses
    )


def stencil_schedules(sources: Sequence[LinearisedResidual], *, gpu: bool = False) -> dict[str, ResidualSchedule]:
    """By label, the schedules of the residuals that are stencils.

    J is stored where that saves more operations than its numbers take to be brought from memory. Those that save most
    come first. What other residuals need, too, is no saving. Then J^T J is, for all on a grid, or all whose J varies.

    Args:
        sources: all residuals of an energy.
        gpu: whether they run on one, where no benchmark has set what an operation costs beside a number: J^T J is
            stored there only where it has no more numbers than products would read without.
    """
    long = {s.residual.label: _both(s) for s in sources if is_stencil(s) and pairs(s) > MOST_PAIRS}
    sources = [s for s in sources if s.residual.label not in long]
    found = _with_jacobians(sources)
    return long | found | _with_normal(sources, found, gpu)


def pairs(source: LinearisedResidual) -> int:
    """Products of two entries of J in a product with J^T J, each component's J p computed wherever it is read."""
    return sum(len(p) ** 2 for p in source.partials)


def _both(source: LinearisedResidual) -> ResidualSchedule:
    """J and J p stored, with no count of what else it would take: that is long itself."""
    entries = sum(map(len, source.partials))
    reason = f"without them, a product with J^T J multiplies {pairs(source)} pairs of its {entries} entries of J"
    return ResidualSchedule(source.residual.label, jacobian=True, product=True, reason=reason)


# -- J -----------------------------------------------------------------------------------------------------------------


def _with_jacobians(sources: Sequence[LinearisedResidual]) -> dict[str, ResidualSchedule]:
    stored = {s.residual.label: _product(store_jacobian(s)[0]) for s in sources if is_stencil(s)}
    constant = [label for label, x in stored.items() if all(f.role is not Role.STORED for f, _ in x.streams)]
    found = {label: ResidualSchedule(label, reason=_CONSTANT) for label in constant}
    stored = {label: x for label, x in stored.items() if label not in found}
    computed = {s.residual.label: _product(s) for s in sources if s.residual.label in stored}
    needed = Needed(computed.values(), [e for s in sources if s.residual.label not in stored for e in _roots(s)])
    for label in sorted(stored, key=lambda x: -computed[x].arithmetic):
        saved, spent = needed.difference([computed[label]], stored[label])
        chosen = pays(spent, saved)
        if chosen:
            needed.replace(computed[label], stored[label])
        counted = f"stored entries of J save {saved:g} additions and take {spent:g}"
        found[label] = ResidualSchedule(label, jacobian=chosen, reason=f"{_AT_EACH_POINT}, {counted}")
    return found


_AT_EACH_POINT = "at each point of a product with J^T J"
_CONSTANT = "its entries of J are constant, or numbers that are read wherever they are"


def _product(source: LinearisedResidual) -> Work:
    dims = tuple(i.dim for i in source.residual.domain)
    unknowns = dict.fromkeys(a.field for a in source.accesses)
    total = gather([source], dims, TIMES_JVP)
    return work([total.total(key) for u in unknowns for key in product_outputs(u)], source.residual.domain)


def _roots(source: LinearisedResidual) -> list[Expr]:
    return [*source.jvps, *(d for p in source.partials for d in p.values())]


# -- J^T J -------------------------------------------------------------------------------------------------------------


def _with_normal(
    sources: Sequence[LinearisedResidual], found: Mapping[str, ResidualSchedule], gpu: bool
) -> dict[str, ResidualSchedule]:
    """The schedules of the residuals whose part of J^T J is stored, or is counted to be better not."""
    grids: dict[tuple[Extent, ...], list[LinearisedResidual]] = {}
    for s in sources:
        if s.residual.label in found and stencil_obstacle(s) is None:
            read = store_jacobian(s)[0] if found[s.residual.label].jacobian else s
            grids.setdefault(s.accesses[0].field.dims, []).append(read)
    decided: dict[str, ResidualSchedule] = {}
    for on_grid in grids.values():
        varying = [s for s in on_grid if found[s.residual.label].reason != _CONSTANT]
        if varying:
            labels = {s.residual.label for s in on_grid}
            others = [e for s in sources if s.residual.label not in labels for e in _roots(s)]
            way = max(_ways(on_grid, varying, others), key=lambda way: way.saved - way.spent)
            stored = pays(way.spent, way.saved) and not (gpu and way.more_numbers)
            own = [found[s.residual.label] for s in way.members]
            decided |= {x.label: replace(x, normal=stored, reason=f"{x.reason}; {way}") for x in own}
    return decided


@final
@dataclass(frozen=True, slots=True)
class _Way:
    """Residuals of one grid whose part of J^T J is stored together.

    Attributes:
        members: the residuals.
        saved, spent: at each point of a product, in additions; with a product's part of what is done once.
        more_numbers: whether products read more numbers than without.
    """

    members: Sequence[LinearisedResidual]
    saved: float
    spent: float
    more_numbers: bool

    def __str__(self) -> str:
        first = self.members[0].residual.label
        others = f" and {n} more" if (n := len(self.members) - 1) else ""
        return f"J^T J of {first}{others} stored saves {self.saved:g} and takes {self.spent:g}"


def _ways(
    on_grid: Sequence[LinearisedResidual], varying: Sequence[LinearisedResidual], others: Iterable[Expr]
) -> Iterator[_Way]:
    """The stencil of those whose J varies, and that of all.

    Args:
        on_grid: all that may be in one.
        varying: those whose J varies.
        others: what other residuals read.
    """
    works = {s.residual.label: _product(s) for s in on_grid}
    needed = Needed(works.values(), others)
    for members in (varying, on_grid) if len(varying) < len(on_grid) else (varying,):
        (stencil,) = normal_stencils(members)
        before = [works[s.residual.label] for s in members]
        after = work(list(stencil.product.values()), canonical_domain(stencil.dims))
        saved, spent = needed.difference(before, after)
        read = {x: n for own in before for x, n in own.streams.items()}
        more = sum(after.streams.values()) > sum(read.values())
        yield _Way(members, saved, spent + _stored_once(stencil) / PRODUCTS, more)


def _stored_once(stencil: NormalStencil) -> float:
    """The cost of storing a stencil, once at each linearisation."""
    domain = canonical_domain(stencil.dims)
    return sum(work(r.roots, domain).cost + storing(len(r.assignments)) for r in stencil.stores)
