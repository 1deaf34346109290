"""Channels that graphs gather together stand together, and every routine agrees on where each of them is."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optpy.api.pipeline import derive, derive_cuda
from optpy.ir import Access, Field, Group, Role, Routine, Target
from optpy.kernels.codegen.channel_order import order_channels
from optpy.scheduling.layouts import _positions, channel_orders
from tests.support.applications import ENERGIES
from tests.support.schedules import GATHERS, routines_of

Groups = Mapping[Group, Sequence[Routine]]


@functools.cache
def groups_of(name: str) -> Groups:
    return routines_of(ENERGIES[name]).groups


def ordered(groups: Groups) -> Groups:
    orders = channel_orders(groups)
    return {name: [order_channels(r, orders) for r in found] for name, found in groups.items()}


def accesses(groups: Groups) -> Iterator[Access]:
    """All that is read, stored and added to."""
    for r in (r for found in groups.values() for r in found):
        yield from r.accesses()
        yield from (s.target for s in r.assignments)
        yield from (x.target for x in r.atomic_adds)


def gathered(groups: Groups, field: str) -> set[frozenset[int]]:
    """The channels of a field that each loop over the edges at a point reads, in the product with J^T J."""
    found = set()
    for x in (x for r in groups[Group.PRODUCT] for x in r.locals):
        leaves = Routine("one", (), locals=(x,)).accesses()
        found.add(frozenset(a.channel for a in leaves if a.field.name == field))
    return {f for f in found if f}


def test_what_belongs_to_one_end_of_an_edge_stands_together() -> None:
    before = routines_of(ENERGIES["bundle_adjustment"], GATHERS[-1]).groups  # J and J p stored
    after = ordered(before)
    # Two residuals, by three numbers of a point and by nine of a camera.
    assert sorted(map(len, gathered(before, "J.reprojection"))) == [6, 18]
    # Then the two residuals themselves, which products do not read.
    assert gathered(after, "J.reprojection") == {frozenset(range(6)), frozenset(range(6, 24))}
    assert frozenset(range(6)) not in gathered(before, "J.reprojection")


@pytest.mark.parametrize("name", ["bundle_adjustment", "cotangent_smoothing", "pose_graph space"])
def test_channels_are_exchanged_and_nothing_else_is_changed(name: str) -> None:
    before = groups_of(name)
    after = ordered(before)
    assert list(after) == list(before)
    moved: dict[tuple[Field, int], set[tuple[Field, int]]] = {}
    for group, routines in before.items():
        for old, new in zip(routines, after[group], strict=True):
            for a, b in zip(old.assignments, new.assignments, strict=True):
                assert (a.target.field, a.target.index) == (b.target.field, b.target.index)
                moved.setdefault((a.target.field, a.target.channel), set()).add((b.target.field, b.target.channel))
    assert all(len(positions) == 1 for positions in moved.values())
    assert len({next(iter(positions)) for positions in moved.values()}) == len(moved)
    elsewhere = {f for (f, channel), positions in moved.items() if positions != {(f, channel)}}
    assert all(f.role is Role.STORED for f in elsewhere)
    assert {(a.field, a.channel) for a in accesses(before)} == {(a.field, a.channel) for a in accesses(after)}


@given(st.integers(1, 12), st.dictionaries(st.frozensets(st.integers(0, 11), min_size=1), st.booleans(), max_size=5))
def test_positions_are_a_permutation_in_which_the_smallest_set_of_a_product_comes_first(
    channels: int, sets: dict[frozenset[int], bool]
) -> None:
    sets = {channels_read: product for channels_read, product in sets.items() if max(channels_read) < channels}
    positions = _positions(channels, sets)
    assert sorted(positions) == list(range(channels))
    if sets:
        smallest = min([r for r, product in sets.items() if product] or sets, key=len)
        assert sorted(positions[c] for c in smallest) == list(range(len(smallest)))
    else:
        assert positions == list(range(channels))


def test_the_processors_order_is_left_alone() -> None:
    energy = ENERGIES["bundle_adjustment"]
    on_cpu, on_gpu = (
        derive(energy.problem, "float32").listing,
        derive_cuda(energy.problem, "float32", target=Target.DETERMINISTIC_GPU).listing,
    )

    def stores(routines: Sequence[Routine]) -> list[int]:
        return [s.target.channel for r in routines for s in r.assignments]

    by_program = [[p.routine(n) for n in p.groups[Group.JACOBIAN]] for p in (on_cpu, on_gpu)]
    assert stores(by_program[0]) == list(range(26))
    assert sorted(stores(by_program[1])) == list(range(26))
    assert stores(by_program[1]) != list(range(26))
