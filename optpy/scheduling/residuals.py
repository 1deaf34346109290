"""Residuals over hyper-edges: the ways in which they may enter products with J^T J, and the one that costs least.

Each way is counted in operations and cache lines (``scheduling.costs``), and the cheapest is taken for each residual.
J^T J is kept for all residuals over one domain, or for none, since their blocks are added up: where it is clearly
cheaper, with a product's part of a linearisation.
How many edges meet at a vertex is not known before there is data, and is left out: many make a gather wait for its
longest loop, and the additions of a scatter wait for one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_jacobian
from optpy.energy.derive.normal_edges import edges_obstacle
from optpy.ir import Domain, ResidualSchedule
from optpy.scheduling.costs import PRODUCTS, gather_cost, kept_cost, linearising_cost, scatter_cost

CLEARLY: Final = 0.8
"""Of what all else takes, J^T J may take so much at edges: these counts are estimates. A product by it takes 0.6 of the
time of one by J where 6 numbers at each of two poses are in 6 residuals, and 0.9 on a mesh, but a linearisation takes
up to twice as long, as what is stored there is written (``python -m bench.schedules``)."""


def gathers(label: str) -> list[ResidualSchedule]:
    """The schedules of a residual by which each vertex gathers over its edges; those that store less come first."""
    return [ResidualSchedule(label, jacobian, jp) for jacobian, jp in product((False, True), repeat=2)]


def scatters(label: str) -> list[ResidualSchedule]:
    """The schedules of a residual by which each edge adds to its vertices; the one that stores less comes first."""
    return [ResidualSchedule(label, jacobian, scatter=True) for jacobian in (False, True)]


def stencils(label: str) -> list[ResidualSchedule]:
    """The schedules of a residual by which its part of J^T J is stored; the one that stores less comes first."""
    return [ResidualSchedule(label, jacobian, normal=True) for jacobian in (False, True)]


def costs(
    source: LinearisedResidual, ways: Iterable[ResidualSchedule], *, gpu: bool = False
) -> dict[ResidualSchedule, int]:
    """Of one product with J^T J in each way, in additions for each edge."""
    stored = store_jacobian(source)[0]
    found = {}
    for way in ways:
        read = stored if way.jacobian else source
        found[way] = scatter_cost(read) if way.scatter else gather_cost(read, way.product, gpu=gpu)
    return found


def cheapest(source: LinearisedResidual, ways: Iterable[ResidualSchedule], *, gpu: bool = False) -> ResidualSchedule:
    """The way whose product with J^T J costs least; of two that cost the same the earlier one."""
    return _cheapest(costs(source, ways, gpu=gpu))


def _cheapest(costs: Mapping[ResidualSchedule, int]) -> ResidualSchedule:
    best = min(costs, key=costs.__getitem__)
    return replace(best, reason=_reason(best, costs))


def with_kept(
    sources: Sequence[LinearisedResidual], counted: Mapping[str, Mapping[ResidualSchedule, int]], *, gpu: bool = False
) -> dict[str, ResidualSchedule]:
    """The cheapest schedules of residuals over edges, with J^T J kept wherever that is clearly cheaper.

    Args:
        sources: the residuals.
        counted: by label, the ``costs`` of their ways without it.
        gpu: whether they run on one.
    """
    found = {label: _cheapest(costs) for label, costs in counted.items()}
    by_domain: dict[Domain, list[LinearisedResidual]] = {}
    for s in sources:
        if edges_obstacle(s) is None:
            by_domain.setdefault(s.residual.domain, []).append(s)
    decided: dict[str, ResidualSchedule] = {}
    for group in by_domain.values():
        own = [found[s.residual.label] for s in group]
        linearising = [linearising_cost([s], way.jacobian, False, gpu=gpu) for s, way in zip(group, own, strict=True)]
        apart = sum(min(counted[way.label].values()) for way in own) + sum(linearising) / PRODUCTS
        product = kept_cost(group, gpu=gpu)
        kept = {j: product + linearising_cost(group, j, True, gpu=gpu) / PRODUCTS for j in (False, True)}
        jacobian = kept[True] < kept[False]
        both = f"with its part of a linearisation {apart:.0f}, and {kept[jacobian]:.0f} with J^T J kept"
        reasons = {way.label: f"{way.reason}; {both}" for way in own}
        if kept[jacobian] <= CLEARLY * apart:
            own = [ResidualSchedule(way.label, jacobian, normal=True) for way in own]
        decided |= {way.label: replace(way, reason=reasons[way.label]) for way in own}
    return found | decided


def _reason(best: ResidualSchedule, costs: Mapping[ResidualSchedule, int]) -> str:
    others = [f"{str(way).partition(': ')[2]}: {cost}" for way, cost in costs.items() if way != best]
    return f"a product with J^T J costs {costs[best]} additions for each edge; {'; '.join(others)}"
