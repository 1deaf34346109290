"""Which residuals over edges store what and which are scattered, with what that is taken to cost."""

from __future__ import annotations

import re
from itertools import product

import pytest

import optpy as op
from optpy.energy.derive.linearised import LinearisedResidual, linearise
from optpy.energy.derive.materialised import store_jacobian, store_product
from optpy.ir import Group, ResidualSchedule, Target
from optpy.scheduling.costs import (
    ATOMIC,
    IN_ROW,
    STREAMED,
    VERTEX,
    gather_cost,
    kept_cost,
    linearising_cost,
    scatter_cost,
)
from optpy.scheduling.residuals import CLEARLY, cheapest, costs, gathers, scatters
from optpy.scheduling.schedule import schedule_residuals
from tests.support.schedules import GATHERS, SCATTERS, Way, routines_of

V, E = op.dims("V E")
v, e = op.indices(V, E)
X, Angle = op.Unknown("X", (V,), 3), op.Unknown("Angle", (V,), 3)
Y, Turn, B = op.Unknown("Y", (V,), 2), op.Unknown("Turn", (V,)), op.Array("B", (V,), 2)
A, w = op.Array("A", (V,), 3), op.params("w")
a, b = op.Graph("g", E, (V, V))[e]


def source(residual: object) -> LinearisedResidual:
    (r,) = op.Energy(r=residual).problem.residuals
    return linearise(r)


CHEAP = source(X[a] - X[b])
DEAR = source((X[a] - X[b]) - op.rotate3d(Angle[a], A[a] - A[b]))
AT_ONE_END = source(X[a][0] ** 2)
ARAP = source(w * ((Y[a] - Y[b]) - op.rotate2d(Turn[a], B[a] - B[b])))
DEAREST = source(op.exp(op.sin(Y[a][0] * Y[b][1]) * op.cos(Y[a][1] * Y[b][0])) / (1 + op.dot(Y[a], Y[b]) ** 2))
ALL = (CHEAP, DEAR, AT_ONE_END, ARAP, DEAREST)
WAYS = [*gathers("r"), *scatters("r")]


def chosen(s: LinearisedResidual, target: Target) -> ResidualSchedule:
    (found,) = schedule_residuals([s], target)
    return found


# -- the choice --------------------------------------------------------------------------------------------------------


def test_what_is_cheap_is_computed_again_and_what_is_dear_is_stored() -> None:
    for s in (CHEAP, ARAP):
        assert chosen(s, Target.CPU) == ResidualSchedule("r", jacobian=False, product=False)
    assert chosen(DEAREST, Target.CPU).jacobian


def test_what_is_dear_is_scattered_and_what_is_cheap_is_gathered() -> None:
    assert not chosen(CHEAP, Target.GPU).scatter
    assert chosen(DEAR, Target.GPU).scatter


@pytest.mark.parametrize("target", Target)
def test_the_choice_is_that_of_the_lowest_cost(target: Target) -> None:
    for s in ALL:
        possible = [way for way in WAYS if target is Target.GPU or not way.scatter]
        found = costs(s, possible, gpu=target.gpu)
        assert list(found) == possible
        assert found[chosen(s, target)] == min(found.values())
        assert chosen(s, target) == cheapest(s, possible, gpu=target.gpu)


def test_only_where_points_may_add_by_atomics_does_anything_scatter() -> None:
    assert not any(chosen(s, target).scatter for s in ALL for target in (Target.CPU, Target.DETERMINISTIC_GPU))


def test_the_reason_counts_what_each_way_costs() -> None:
    for s, target in product(ALL, Target):
        found = chosen(s, target)
        counted = costs(s, [way for way in WAYS if target is Target.GPU or not way.scatter], gpu=target.gpu)
        first, *others, whole = found.reason.split("; ")
        assert first == f"a product with J^T J costs {counted[found]} additions for each edge"
        assert others == [f"{str(way).removeprefix('r: ')}: {cost}" for way, cost in counted.items() if way != found]
        assert re.fullmatch(r"with its part of a linearisation \d+, and \d+ with J\^T J kept", whole)


def many(numbers: int) -> tuple[LinearisedResidual, ...]:
    """Two residuals over one graph; the first has many numbers of two unknowns each."""
    more = op.vector(*(op.exp(k * Turn[a] * Turn[b]) for k in range(1, numbers + 1)))
    energy = op.Energy(r=more, s=Turn[a] - Turn[b])
    return tuple(map(linearise, energy.problem.residuals))


def test_where_few_unknowns_are_in_many_residuals_the_products_of_their_entries_are_kept() -> None:
    """And then of all residuals over the graph, whose products are added up."""
    kept = schedule_residuals(many(12), Target.CPU)
    assert [x.normal for x in kept] == [True, True]
    assert not any(chosen(s, target).normal for s in ALL for target in Target)
    counts = [float(x) for x in re.findall(r"linearisation (\d+), and (\d+)", kept[0].reason)[0]]
    assert counts[1] <= CLEARLY * counts[0]
    by_hand = ResidualSchedule("s", product=True)
    assert schedule_residuals(many(12), Target.CPU, [by_hand])[1] == by_hand


def test_blocks_that_are_kept_cost_what_is_read_of_them() -> None:
    """However many residuals add to them."""
    few, more = many(4), many(12)
    assert kept_cost(few, gpu=False) == kept_cost(more, gpu=False)
    assert linearising_cost(few, False, True, gpu=False) < linearising_cost(more, False, True, gpu=False)
    assert linearising_cost(few, False, False, gpu=False) < linearising_cost(few, False, True, gpu=False)


def test_what_is_given_by_hand_is_taken() -> None:
    given = ResidualSchedule("r", jacobian=True, product=True, reason="to be seen")
    assert schedule_residuals([CHEAP], Target.CPU, [given]) == (given,)
    with pytest.raises(op.OptionError, match=r"there is no residual 'other'; there are: r$"):
        schedule_residuals([CHEAP], Target.CPU, [ResidualSchedule("other", True)])
    with pytest.raises(ValueError, match="serves nothing"):
        ResidualSchedule("r", product=True, scatter=True)


def test_residuals_of_which_nothing_can_be_kept_are_left_out() -> None:
    U, s = op.Unknown("U", (E,)), op.Unknown("s", ())
    assert schedule_residuals([source(U[e] * s[()])], Target.GPU) == ()
    assert schedule_residuals([source(U[e] - A[a][0])], Target.GPU) == (ResidualSchedule("r"),)


# -- the costs ---------------------------------------------------------------------------------------------------------


def test_a_scatter_takes_one_addition_for_each_number_that_an_edge_reads() -> None:
    more = source(op.vector(X[a][0] ** 2, 3 * X[a][0]))  # more components, the same element
    assert ATOMIC < scatter_cost(AT_ONE_END) < scatter_cost(more) < scatter_cost(AT_ONE_END) + ATOMIC
    assert scatter_cost(CHEAP) > 6 * ATOMIC


def test_a_pass_that_stores_the_product_streams_each_number_once() -> None:
    none, stored = (costs(CHEAP, gathers("r"))[way] for way in gathers("r")[:2])
    assert stored - none > 3 * STREAMED  # it stores three numbers, and gains no more than two reads of a vertex
    assert stored < none + 3 * STREAMED + 2 * 3 * 8 + 2 * 24 + 2 * VERTEX


def test_a_function_of_one_end_costs_a_read_and_one_of_both_ends_is_computed() -> None:
    """The rule is that by which values are stored: those of two points never are, nor beside where an edge points."""
    at_one, at_both = source(op.sin(Y[a][0]) * Y[b][0]), source(op.sin(Y[a][0] + Y[b][1]) * Y[b][0])
    beside = source(op.sin(Y[a + 1][0]) * Y[b][0])
    plain = gathers("r")[0]
    assert costs(at_one, [plain])[plain] < costs(beside, [plain])[plain]
    assert costs(at_one, [plain])[plain] < costs(at_both, [plain])[plain]


def test_stored_derivatives_are_read_in_the_order_of_the_edges_or_out_of_it() -> None:
    stored, _ = store_jacobian(DEAREST)
    numbers = len({a for t in stored.jvps for a in t.children})
    assert numbers > 0
    assert costs(DEAREST, [gathers("r")[2]]) == {gathers("r")[2]: costs(stored, [gathers("r")[0]])[gathers("r")[0]]}
    assert store_product(DEAREST)[1]


def test_beside_a_row_numbers_of_edges_are_dear_and_what_vectors_compute_is_cheap() -> None:
    """An edge and a vertex are reached once for a row; J of each edge is a row of its own, which no cache keeps."""
    T = op.dims("T")
    t = op.indices(T)
    R, G = op.Unknown("R", (V, T)), op.Array("G", (E, T))
    root, dear = (op.sqrt(1 + (R[a, t] - R[b, t]) ** 2), op.exp(op.sin(R[a, t] * R[b, t])))
    assert not chosen(source(root), Target.CPU).jacobian
    assert chosen(source(dear), Target.CPU).jacobian
    assert chosen(source(op.sqrt(1 + (Y[a][0] - Y[b][0]) ** 2)), Target.CPU).jacobian  # edges one by one
    own, plain = source(G[e, t] * (R[a, t] - R[b, t])), source(R[a, t] - R[b, t])
    difference = gather_cost(own, False, gpu=False) - gather_cost(plain, False, gpu=False)
    assert 2 * IN_ROW < difference < 2 * IN_ROW + 8


# -- what follows ------------------------------------------------------------------------------------------------------


def test_each_residual_is_chosen_for_itself() -> None:
    energy = op.Energy(cheap=X[a] - X[b], dear=(X[a] - X[b]) - op.rotate3d(Angle[a], A[a] - A[b]))
    vertices, edges = routines_of(energy, None, Target.GPU).groups[Group.PRODUCT]
    assert vertices.prepares
    assert vertices.locals
    assert len(edges.atomic_adds) == 9  # X at both ends, Angle at one
    assert not edges.locals


def test_what_is_fixed_is_stored_once_and_only_where_edges_need_it() -> None:
    fixed = {X: op.value(v) == 0, Angle: op.value(v) == 1}
    energy = op.Energy(reg=X[a] - X[b], fit=Angle[v], fixed=fixed)

    def stored(way: Way) -> set[str]:
        groups = routines_of(energy, way).groups
        return {s.target.field.name for r in groups.get(Group.JACOBIAN, ()) for s in r.assignments}

    assert stored(GATHERS[0]) == set()
    assert stored(SCATTERS[0]) == {"free.X"}
