"""Residuals over hyper-edges: the ways in which they may enter products with J^T J, and the one that costs least.

Each way is counted in operations and cache lines (``scheduling.costs``), and the cheapest is taken for each residual.
How many edges meet at a vertex is not known before there is data, and is left out: many make a gather wait for its
longest loop, and the additions of a scatter wait for one another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import product

from optpy.energy.derive.linearised import LinearisedResidual
from optpy.energy.derive.materialised import store_jacobian
from optpy.ir import ResidualSchedule
from optpy.scheduling.costs import gather_cost, scatter_cost


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
    found = costs(source, ways, gpu=gpu)
    best = min(found, key=found.__getitem__)
    return replace(best, reason=_reason(best, found))


def _reason(best: ResidualSchedule, costs: Mapping[ResidualSchedule, int]) -> str:
    others = [f"{str(way).partition(': ')[2]}: {cost}" for way, cost in costs.items() if way != best]
    return f"a product with J^T J costs {costs[best]} additions for each edge; {'; '.join(others)}"
