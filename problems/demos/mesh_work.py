"""A mesh that follows its handles as rigidly as possible, step by step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, final

import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from ..mesh_deformation import ENERGIES, deformation
from .solving import Step

Vector3 = tuple[float, float, float]
Device = Literal["auto", "cpu", "cuda"]


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """How one frame is solved.

    Attributes:
        rotations: a key of `ENERGIES`.
        method: "gn" or "lm".
        nonlinear: iterations of a frame.
        linear: iterations of each of them.
        w_fit: weight of the handles.
        w_reg: weight of rigidity.
    """

    rotations: str = "euler"
    method: str = "lm"
    nonlinear: int = 2
    linear: int = 10
    w_fit: float = 10.0
    w_reg: float = 1.0


_NEW_SESSION: Final = ("rotations", "method", "linear")
"""Settings that a session begins with."""


@final
@dataclass(frozen=True, slots=True)
class HandleAt:
    """The input under which the target of a vertex is put: a place, or None to let it go."""

    vertex: int


@final
@dataclass(slots=True)
class MeshWork:
    """As-rigid-as-possible deformation of a mesh, by the energies of `problems.mesh_deformation`.

    Inputs are ``HandleAt(vertex)``, a place or None, and ``Settings`` by the names of their fields; "reset" puts the
    mesh back as it was, without handles; "undo" takes the last change of a handle back that was marked by "mark".

    Attributes:
        mesh: as it was.
        device: as ``op.compile`` takes it.
        settings: in force.
        targets: of the handles, by vertex.
        vertices: (V, 3), as they stand.
    """

    mesh: Trimesh
    device: Device = "cpu"
    settings: Settings = Settings()
    targets: dict[int, Vector3] = field(default_factory=dict)
    vertices: NDArray[np.float64] = field(init=False)
    _marked: list[dict[int, Vector3]] = field(default_factory=list)
    _session: op.Session = field(init=False)
    _solver: op.Solver = field(init=False)

    def __post_init__(self) -> None:
        self.vertices = np.asarray(self.mesh.vertices, np.float64).copy()
        self._start()

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        """Take new targets and settings."""
        if inputs.get("mark"):
            self._marked.append(dict(self.targets))
        for key, place in inputs.items():
            if isinstance(key, HandleAt):
                self._pull(key.vertex, place)
        if inputs.get("undo") and self._marked:
            self.targets = self._marked.pop()
        given = {name: value for name, value in inputs.items() if name in Settings.__slots__}
        changed = {str(name) for name, value in given.items() if value != getattr(self.settings, str(name))}
        self.settings = replace(self.settings, **given)
        if inputs.get("reset"):
            self.targets, self._marked = {}, []
            self.vertices = np.asarray(self.mesh.vertices, np.float64).copy()
            self._start()
        elif changed.intersection(_NEW_SESSION):
            self._start()
        else:
            self._session.update(**self._pulled(), w_fit=self.settings.w_fit, w_reg=self.settings.w_reg)

    def _pull(self, vertex: int, place: Vector3 | None) -> None:
        if not 0 <= vertex < len(self.vertices):
            raise ValueError(f"the mesh has no vertex {vertex}: it has {len(self.vertices)}")
        if place is None:
            self.targets.pop(vertex, None)
        elif np.isfinite(place).all():
            self.targets[vertex] = place
        else:
            raise ValueError(f"vertex {vertex} is pulled to {place}, which is no place")

    def _pulled(self) -> dict[str, Any]:
        """The data that handles change."""
        handle = np.zeros(len(self.vertices), np.bool_)
        target = self.vertices.copy()
        for vertex, place in self.targets.items():
            handle[vertex], target[vertex] = True, place
        return dict(Handle=handle, Constraints=target)

    def _start(self) -> None:
        s = self.settings
        data = deformation(self.mesh).data(s.rotations) | self._pulled()
        self._solver = op.compile(ENERGIES[s.rotations], device=self.device, dtype=np.float32)
        data |= dict(Offset=self.vertices.astype(np.float32), w_fit=s.w_fit, w_reg=s.w_reg)
        self._session = self._solver.start(data, method=s.method, linear_iterations=s.linear, eta=0.0)

    @property
    def device_text(self) -> str:
        """Where it is solved, and why there."""
        return f"{self._solver.device}: {self._solver.device_reason}"

    def step(self) -> Step:
        """As many iterations as a frame has."""
        linear = 0
        for _ in range(self.settings.nonlinear):
            record = self._session.step()
            linear += record.linear_iterations
            if self._session.status.finished:
                break
        if self._session.status is op.Status.FAILURE:
            raise ArithmeticError(self._session.result().message)
        self.vertices = np.asarray(self._session["Offset"], np.float64)
        done = self._session.status.finished
        return Step(record.cost, linear, done, self._session.status.value if done else "")

    def recover(self) -> None:
        """Start again from the mesh as it was, with no handle."""
        self.targets, self._marked = {}, []
        self.vertices = np.asarray(self.mesh.vertices, np.float64).copy()
        self._start()
