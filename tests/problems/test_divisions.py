"""Divisions and roots in the loops of problems: few, as values are shared and those of params leave the loops."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import optpy as op
from optpy.api.pipeline import derive
from optpy.ir import FuncSchedule, Group, ResidualSchedule, loops
from optpy.kernels.codegen import arithmetic, functions
from optpy.scheduling.given import Given
from optpy.symbolic.expr import Call
from optpy.symbolic.order import topological
from problems import (
    bundle_adjustment,
    cotangent_smoothing,
    embedded_deformation,
    image_warping,
    laplacian_smoothing,
    mesh_deformation,
    nonrigid_alignment,
    poisson_image_editing,
    pose_graph,
    shape_from_shading,
    sparse_warping,
)
from tests.support.schedules import stencils_by_hand

GROUPS = (Group.RESIDUALS, Group.JACOBIAN, Group.GRADIENT, Group.PRODUCT)

Counts = tuple[tuple[int, int], ...]
"""(divisions, roots) of each group."""


def counted(energy: op.Energy, given: Given = ()) -> Counts:
    """At a point of the interior, or at an edge: all functions but those of the border."""
    listing = derive(energy.problem, "float64", given).listing
    found = []
    for group in GROUPS:
        over, sqrt = 0, 0
        for function in (_of_the_interior(listing.loops[k]) for k in listing.groups.get(group, ())):
            for s in (s for nest in function.body for b in loops.blocks_of(nest).values() for s in loops.walk(b)):
                if isinstance(s, loops.Evaluate):
                    names = [node.op.name for node in topological(s.values) if isinstance(node, Call)]
                    over, sqrt = over + names.count("over"), sqrt + names.count("sqrt")
        found.append((over, sqrt))
    return tuple(found)


def _of_the_interior(kernel: Sequence[loops.Function]) -> loops.Function:
    """The function that computes all points but those of the border, or all."""
    inside = [f for f in kernel if f.name.endswith("_interior")]
    (found,) = inside or kernel
    return found


def unshared(energy: op.Energy, given: Given = ()) -> Counts:
    """The counts without the passes that share values."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(arithmetic, "share_reciprocals", lambda function: function)
        m.setattr(functions, "hoist", lambda function: function)
        return counted(energy, given)


NONE: Counts = ((0, 0),) * len(GROUPS)


@pytest.mark.parametrize(
    "energy",
    [
        image_warping.energy,
        sparse_warping.energy,
        laplacian_smoothing.energy,
        poisson_image_editing.energy,
        mesh_deformation.euler,
        mesh_deformation.so3,
        embedded_deformation.energy,
        nonrigid_alignment.energy,
        pose_graph.pose_graph(2),
        pose_graph.pose_graph(3),
    ],
)
def test_polynomials_divide_nowhere(energy: op.Energy) -> None:
    """Not by params either, nor are their roots in a loop."""
    assert counted(energy) == NONE


@pytest.mark.parametrize(
    ("energy", "before", "after"),
    [
        (cotangent_smoothing.energy, ((3, 5), (120, 5), (0, 0), (0, 0)), ((3, 5), (11, 5), (0, 0), (0, 0))),
        (bundle_adjustment.energy, ((6, 1), (68, 1), (0, 0), (0, 0)), ((3, 1), (10, 1), (0, 0), (0, 0))),
        (
            bundle_adjustment.robust_energy("cauchy"),
            ((21, 4), (72, 2), (0, 0), (0, 0)),
            ((7, 4), (12, 2), (0, 0), (0, 0)),
        ),
        (shape_from_shading.energy, ((13, 4), (55, 1), (12, 0), (0, 0)), ((1, 1), (2, 1), (0, 0), (0, 0))),
        (shape_from_shading.inline, ((13, 4), (55, 1), (12, 0), (0, 0)), ((1, 1), (2, 1), (0, 0), (0, 0))),
    ],
)
def test_values_are_shared(energy: op.Energy, before: Counts, after: Counts) -> None:
    assert unshared(energy) == before
    assert counted(energy) == after


@pytest.mark.deep
def test_shading_with_nothing_stored_divides_twice_for_each_normal() -> None:
    """By the square of its length and by the length; once for each of the 10 normals around a pixel in a product."""
    energy = shape_from_shading.inline
    inlined: Given = [*stencils_by_hand(energy, ResidualSchedule("every")), FuncSchedule("common 1")]
    assert unshared(energy, inlined) == ((35, 6), (0, 0), (164, 11), (302, 11))
    assert counted(energy, inlined) == ((3, 3), (0, 0), (13, 10), (20, 10))
