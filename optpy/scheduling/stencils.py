"""Products with J^T J over grids: whether the entries of J, and J p, are stored at each point.

A point of the unknowns is read by the residuals around it, and each product with J^T J computes their entries of J at
each of these points anew, unless they are stored once for each linearisation; and their J p, unless a pass before it
stores that. Counted are operations, and the numbers that have to be brought from memory for each point, however many
of its neighbours read them. Where a residual reads so much that the code itself would be long, it counts alone: n
reads take n^2 operations without J p in memory, 2 n with it, and compilers more time than in proportion.

The stencil of J^T J itself is not among the choices, as no problem here would gain by it: where J is stored for
intrinsic_images, it has two numbers at a pixel (``python -m bench.schedules intrinsic_images --size 1024``, on one
thread of a busy machine: 1.6 ns, and 17.6 with nothing stored), and the blocks of J^T J are made of the same two; for
volumetric_deformation it has 69 numbers at a point where J has 54, and 54 are too many already (48 ns; 30 with none).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from optpy.energy.derive.contributions import TIMES_JVP
from optpy.energy.derive.gather import gather
from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_jacobian
from optpy.energy.derive.routines import product_outputs
from optpy.ir import Access, FieldChannel, Plane, ResidualSchedule, Role
from optpy.scheduling.residuals import with_values_read
from optpy.scheduling.values import fields_read_in_conditions_only
from optpy.symbolic.count import count_nodes
from optpy.symbolic.expr import Expr
from optpy.symbolic.order import topological
from optpy.symbolic.traverse import variables

STREAM = 16
"""Additions in vectors that take as long as bringing one number of each point from memory
(``python -m bench image_warping --parts throughput``)."""
WORTH = 2 / 3
"""Of what it saves, storing J may take so much: these counts are estimates, and memory is taken, too. By reasoning;
``python -m bench.schedules shape_from_shading`` shows both ways."""
MOST_PAIRS = 256
"""Products of two entries of J that are printed for one residual: 16 reads. Printed for all, those of a K x K blur took
compilers 0.6, 2.7 and 15 s for K = 3, 5 and 7 (``python -m bench.compile_growth blur``)."""
BYTE = 0.25
"""Of a number in float32 a byte; of one in float64 it is less."""


@final
@dataclass(frozen=True, slots=True)
class _Product:
    """A residual's part of a product with J^T J at a point.

    Attributes:
        operations: what is computed.
        streams: what is brought from memory, each with its size.
    """

    operations: frozenset[Expr]
    streams: Mapping[FieldChannel, float]


def is_stencil(source: LinearisedResidual) -> bool:
    """Whether a residual reads unknowns on its own grid, at constant distances, and nowhere else."""
    domain = source.residual.domain
    dims = tuple(i.dim for i in domain)
    return bool(domain) and all(
        a.field.dims == dims and None not in [x.offset_from(i) for x, i in zip(a.index, domain, strict=True)]
        for a in source.accesses
    )


def stencil_schedules(sources: Sequence[LinearisedResidual]) -> dict[str, ResidualSchedule]:
    """By label, the schedules of the residuals that are stencils and whose J is not constant, or that read much.

    J is stored where that saves more operations than its numbers take to be brought from memory. Those that save most
    come first. What other residuals need, too, is no saving.

    Args:
        sources: all residuals of an energy.
    """
    long = {s.residual.label: _both(s) for s in sources if is_stencil(s) and pairs(s) > MOST_PAIRS}
    sources = [s for s in sources if s.residual.label not in long]
    return long | _by_counts(sources)


def pairs(source: LinearisedResidual) -> int:
    """Products of two entries of J in a product with J^T J, each component's J p computed wherever it is read."""
    return sum(len(p) ** 2 for p in source.partials)


def _both(source: LinearisedResidual) -> ResidualSchedule:
    """J and J p stored, with no count of what else it would take: that is long itself."""
    entries = sum(map(len, source.partials))
    reason = f"without them, a product with J^T J multiplies {pairs(source)} pairs of its {entries} entries of J"
    return ResidualSchedule(source.residual.label, jacobian=True, product=True, reason=reason)


def _by_counts(sources: Sequence[LinearisedResidual]) -> dict[str, ResidualSchedule]:
    stored = {s.residual.label: _product(store_jacobian(s)[0]) for s in sources if is_stencil(s)}
    stored = {label: x for label, x in stored.items() if any(f.role is Role.STORED for f, _ in x.streams)}
    computed = {s.residual.label: _product(s) for s in sources if s.residual.label in stored}
    needed = _Needed(computed.values(), [s for s in sources if s.residual.label not in stored])
    constant = [s.residual.label for s in sources if is_stencil(s) and s.residual.label not in stored]
    found = {label: ResidualSchedule(label, reason=_CONSTANT) for label in constant}
    for label in sorted(stored, key=lambda x: -count_nodes(computed[x].operations).cost):
        saved, spent = needed.difference(computed[label], stored[label])
        chosen = spent <= WORTH * saved
        if chosen:
            needed.replace(computed[label], stored[label])
        counted = f"stored entries of J save {saved:g} additions and take {spent:g}"
        reason = f"at each point of a product with J^T J, {counted}"
        found[label] = ResidualSchedule(label, jacobian=chosen, reason=reason)
    return found


_CONSTANT = "its entries of J are numbers that are read wherever they are"


@final
class _Needed:
    """The operations and streams of all residuals, by how many need each."""

    def __init__(self, products: Iterable[_Product], others: Iterable[LinearisedResidual]) -> None:
        self._operations: Counter[Expr] = Counter()
        self._streams: Counter[FieldChannel] = Counter(x for s in others for x in _streams(_roots(s)))
        for product in products:
            self._operations.update(product.operations)
            self._streams.update(product.streams.keys())

    def difference(self, before: _Product, after: _Product) -> tuple[float, float]:
        """In additions, what need no longer be done where one product takes the place of another, and what more."""
        alone = [e for e in before.operations - after.operations if self._operations[e] == 1]
        new = [e for e in after.operations if not self._operations[e]]
        left = [n for x, n in before.streams.items() if self._streams[x] == 1 and x not in after.streams]
        come = [n for x, n in after.streams.items() if not self._streams[x]]
        return count_nodes(alone).cost + STREAM * sum(left), count_nodes(new).cost + STREAM * sum(come)

    def replace(self, before: _Product, after: _Product) -> None:
        """One product takes the place of another."""
        self._operations.subtract(before.operations)
        self._operations.update(after.operations)
        self._streams.subtract(before.streams.keys())
        self._streams.update(after.streams.keys())


def _product(source: LinearisedResidual) -> _Product:
    dims = tuple(i.dim for i in source.residual.domain)
    unknowns = dict.fromkeys(a.field for a in source.accesses)
    total = gather([source], dims, TIMES_JVP)
    sums = [total.total(key) for u in unknowns for key in product_outputs(u)]
    nodes = topological(with_values_read(sums, source.residual.domain, ()))
    return _Product(frozenset(nodes), _streams(sums))


def _roots(source: LinearisedResidual) -> list[Expr]:
    return [*source.jvps, *(d for p in source.partials for d in p.values())]


def _streams(roots: Sequence[Expr]) -> dict[FieldChannel, float]:
    """All that is read besides the solver's vectors, each with its size in numbers of the solver's precision."""
    keys = (v.key for v in variables(roots))
    read = {(k.field, k.channel) for k in keys if isinstance(k, Access | Plane) and k.field.role is not Role.VECTOR}
    as_bytes = fields_read_in_conditions_only(roots)
    return {x: BYTE if x[0] in as_bytes or x[0].dtype in ("uint8", "bool") else 1.0 for x in read}
