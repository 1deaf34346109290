"""As-rigid-as-possible deformation of a mesh, with Euler angles: an energy of problems/mesh_deformation.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import trimesh

from bench.case import Case, CeresProgram, CeresRun, Data, Famous
from bench.traffic import Operand, Traffic
from problems import mesh_deformation as problem
from problems import meshes


def torus(size: int) -> Data:
    """A torus of `size` rings of `size` vertices that stands upright: six neighbours at every vertex."""
    ring = trimesh.creation.torus(major_radius=1.0, minor_radius=0.4, major_sections=size, minor_sections=size)
    return problem.deformation(ring).data("euler")


def koala() -> Data | None:
    """49,999 vertices, 149,991 edges; None without its file."""
    mesh = meshes.data_mesh("koala.obj")
    return None if mesh is None else problem.deformation(mesh).data("euler")


def vertices_and_edges(data: Data) -> tuple[int, int]:
    """The mesh's vertices, and its directed edges."""
    return len(data["Offset"]), len(data["edges"])


def write_data(path: Path, data: Data) -> None:
    """Writes what the Ceres program reads; the format stands at its top."""
    with path.open("wb") as file:
        file.write(np.array(vertices_and_edges(data), "<i8").tobytes())
        file.write(np.array([data["w_fit"], data["w_reg"]], "<f8").tobytes())
        for name in ("Offset", "Angle", "UrShape", "Constraints"):
            file.write(np.ascontiguousarray(data[name], "<f8").tobytes())
        file.write(np.ascontiguousarray(data["Handle"], np.uint8).tobytes())
        file.write(np.ascontiguousarray(data["edges"], "<i4").tobytes())


CASE = Case(
    name="mesh_deformation",
    energy=problem.euler,
    data=torus,
    # J depends on Offset and Constraints nowhere.
    traffic=Traffic(
        unknown_channels=6,
        operands=(Operand("Angle", 3), Operand("UrShape", 3), Operand("Handle", kind="uint8")),
        damped=True,
        edge_slots=2,
    ),
    method="lm",
    ceres=CeresProgram("ceres_mesh_deformation.cc", write_data),
    famous=Famous("koala", koala, target=None, runs=(CeresRun("cholesky"),)),
    elements=vertices_and_edges,
    unit="edge",
    largest=1024,
)
