"""Depth frames of one thing, aligned: the energy of problems/bundle_fusion.py.

A made pebble is seen from all around by a dozen cameras whose poses have drifted away. The poses are few, and so all of
the traffic is the frames': what is counted stands at one pixel of all of them.
"""

from __future__ import annotations

from bench.case import Case, Data
from bench.traffic import Operand, Traffic
from problems import bundle_fusion as problem
from problems import meshes

FRAMES = 12


def pebble_all_around(size: int) -> Data:
    """Frames of `size` x `size` pixels, each compared with its two neighbours."""
    return problem.turning(meshes.pebble(), size, FRAMES).data


def pixels_and_edges(data: Data) -> tuple[int, int]:
    """The pixels of one frame; the pairs of frames and the matches."""
    return data["Depth"][0].size, len(data["pairs"]) + len(data["matches"])


CASE = Case(
    name="bundle_fusion",
    energy=problem.energy,
    data=pebble_all_around,
    traffic=Traffic(
        unknown_channels=0,
        operands=(Operand("Pose", 7 * FRAMES, kind="shared"), Operand("Depth", FRAMES), Operand("Grey", FRAMES)),
        damped=True,
        edge_slots=4,
        edge_operands=(Operand("Match", 6),),
    ),
    method="lm",
    elements=pixels_and_edges,
    reweighted=True,
    largest=256,  # larger frames take minutes to render
)
