"""Alignment of one mesh with another: the energy of problems/nonrigid_alignment.py, with the matches of the start.

One solve is measured, between two updates of the matches; the mesh is as soft as in the middle of the problem's run.
"""

from __future__ import annotations

from bench.case import Case, CeresProgram, Data, Famous
from bench.torus import torus, vertices_and_edges
from bench.traffic import Operand, Traffic
from problems import nonrigid_alignment as problem
from problems.nonrigid_alignment import Alignment
from problems.surface import Surface


def straight_and_bent_torus(size: int) -> Data:
    """A torus of `size` x `size` vertices, and the same, bent and larger."""
    return matched_once(Alignment(torus(size), Surface(problem.bent(torus(size)))))


def man_and_woman() -> Data | None:
    """6,890 vertices, 20,664 edges; None without their files."""
    task = problem.human_alignment()
    return None if task is None else matched_once(task)


def matched_once(task: Alignment) -> Data:
    """The first matches, with the rigidity of the middle."""
    first, last = problem.STIFFNESS
    return {**task.data, "w_reg": (first * last) ** 0.5}


CASE = Case(
    name="nonrigid_alignment",
    energy=problem.energy,
    data=straight_and_bent_torus,
    traffic=Traffic(
        unknown_channels=7,
        operands=(
            Operand("X", 3),
            Operand("Rotation", 4),
            Operand("Weight"),
            Operand("UrShape", 3),
            Operand("Target", 3),
            Operand("Normal", 3),
            Operand("Matched", kind="uint8"),
        ),
        damped=True,
        edge_slots=2,
    ),
    method="lm",
    ceres=CeresProgram(
        "ceres_nonrigid_alignment.cc",
        (
            *("w_fit", "w_conf", "w_reg", "X", "Rotation", "Weight", "UrShape"),
            *("Target", "Normal", "Matched", "edges"),
        ),
    ),
    famous=Famous("man and woman", man_and_woman),
    elements=vertices_and_edges,
    unit="edge",
    largest=256,  # the matches of larger ones take minutes
)
