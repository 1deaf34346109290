"""A mesh that follows its handles, step by step, by one of several energies."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from trimesh import Trimesh

import optpy as op

from .handles import Handle
from .mesh_models import MODELS, MeshModel
from .script import Allowed
from .solving import Step

Device = Literal["auto", "cpu", "cuda"]


@final
@dataclass(frozen=True, slots=True)
class Settings:
    """The ways in which one frame is solved.

    Attributes:
        model: a key of `MODELS`.
        method: "gn" or "lm".
        nonlinear: iterations of a frame.
        linear: iterations of each of them.
        w_fit: weight of the handles.
        w_reg: weight of rigidity.
        w_rot: weight of matrices that shall be rotations, in the embedded model.
    """

    model: str = "euler"
    method: str = "lm"
    nonlinear: int = 2
    linear: int = 10
    w_fit: float = 10.0
    w_reg: float = 1.0
    w_rot: float = 1.0


ALLOWED: Final[dict[str, Allowed]] = {
    "model": tuple(MODELS),
    "method": ("lm", "gn"),
    "nonlinear": (1, 10),
    "linear": (1, 100),
    "w_fit": (0.1, 100.0),
    "w_reg": (0.1, 10.0),
    "w_rot": (0.1, 10.0),
}
"""The values that pages and scripts give to settings."""

_NEW_SESSION: Final = ("model", "method", "linear")
"""Settings that a session begins with."""


@final
@dataclass(frozen=True, slots=True)
class HandleAt:
    """The input under which a handle is put: a `Handle`, or None to let it go.

    Attributes:
        number: of the handle; whoever puts it chooses one.
    """

    number: int


class _State(NamedTuple):
    settings: Settings
    handles: dict[int, Handle]
    vertices: NDArray[np.float64]


@final
@dataclass(slots=True)
class MeshWork:
    """Deformation of a mesh by handles.

    Inputs are ``HandleAt(number)``, a `Handle` or None, and `Settings` by the names of their fields; "reset" puts the
    mesh back as it was, without handles; "mark" remembers the handles of before, and "undo" goes back to them;
    "version" is a number that goes to `version`.

    Attributes:
        mesh: as it was.
        device: as ``op.compile`` takes it.
        settings: in force.
        handles: by number.
        vertices: (V, 3), as they stand.
        version: of the newest inputs that were taken, so that a page knows which of its changes were seen.
    """

    mesh: Trimesh
    device: Device = "cpu"
    settings: Settings = Settings()
    handles: dict[int, Handle] = field(default_factory=dict)
    vertices: NDArray[np.float64] = field(init=False)
    version: int = 0
    _marked: list[dict[int, Handle]] = field(default_factory=list)
    _good: _State | None = None
    _model: MeshModel = field(init=False)
    _session: op.Session = field(init=False)
    _solver: op.Solver = field(init=False)

    def __post_init__(self) -> None:
        self.vertices = np.asarray(self.mesh.vertices, np.float64).copy()
        self._start()

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        """Take new handles and settings.

        Raises:
            ValueError: a handle's vertex is not in the mesh, or its place is none; nothing has changed then.
        """
        self.version = inputs.get("version", self.version)
        put = {key.number: handle for key, handle in inputs.items() if isinstance(key, HandleAt)}
        for handle in put.values():
            self._check(handle)
        if inputs.get("mark"):
            self._marked.append(self.handles)
        left = {number: handle for number, handle in self.handles.items() if number not in put}
        self.handles = left | {number: handle for number, handle in put.items() if handle is not None}
        if inputs.get("undo"):
            self._undo()
        before = self.settings
        self.settings = replace(before, **{str(n): value for n, value in inputs.items() if n in ALLOWED})
        if inputs.get("reset"):
            self._go_to(_State(self.settings, {}, np.asarray(self.mesh.vertices, np.float64).copy()))
        elif any(getattr(before, name) != getattr(self.settings, name) for name in _NEW_SESSION):
            self._start()
        else:
            self._session.update(**self._pulled())

    def _undo(self) -> None:
        """The newest handles that were remembered and are not those of now."""
        while self._marked:
            before = self._marked.pop()
            if before != self.handles:
                self.handles = before
                return

    def _check(self, handle: Handle | None) -> None:
        if handle is None:
            return
        if not ((handle.vertices >= 0) & (handle.vertices < len(self.vertices))).all():
            raise ValueError(f"the mesh has no vertex {handle.vertices.max()}: it has {len(self.vertices)}")
        turn = np.linalg.norm(handle.wxyz)
        if not (np.isfinite(handle.position).all() and np.isfinite(turn) and turn > 0):
            raise ValueError(f"a handle is pulled to {handle.position}, turned by {handle.wxyz}, which is no place")

    def _pulled(self) -> dict[str, Any]:
        """The data that handles and sliders change."""
        pulled = np.zeros(len(self.vertices), np.bool_)
        target = self.vertices.copy()
        for handle in self.handles.values():
            pulled[handle.vertices], target[handle.vertices] = True, handle.targets
        s = self.settings
        return self._model.pulled(pulled, target) | self._model.weights(s.w_fit, s.w_reg, s.w_rot)

    def _start(self) -> None:
        s = self.settings
        self._model = MODELS[s.model](self.mesh)
        self._solver = op.compile(self._model.energy, device=self.device, dtype=np.float32)
        data = self._model.data | self._pulled() | self._model.standing(self.vertices)
        # A frame has few linear iterations: setting up multigrid for them would take longer than they do.
        options: dict[str, Any] = dict(method=s.method, linear_iterations=s.linear, eta=0.0)
        self._session = self._solver.start(data, preconditioner="block_jacobi", **options)

    @property
    def device_text(self) -> str:
        """Where it is solved, and why there."""
        return f"{self._solver.device}: {self._solver.device_reason}"

    def step(self) -> Step:
        """As many iterations as a frame has.

        Raises:
            ArithmeticError: the solve has failed.
        """
        linear = 0
        for _ in range(self.settings.nonlinear):
            record = self._session.step()
            linear += record.linear_iterations
            if self._session.status.finished:
                break
        places = self._model.places(self._session)
        if self._session.status is op.Status.FAILURE or not np.isfinite(places).all():
            raise ArithmeticError(self._session.result().message)
        self.vertices = places
        self._good = _State(self.settings, self.handles, places)
        done = self._session.status.finished
        return Step(record.cost, linear, done, self._session.status.value if done else "")

    def recover(self) -> None:
        """Go back to where the last step did not fail; where that does not help, to the mesh as it was."""
        if self._good is not None:
            self._go_to(self._good)
            with suppress(op.OptpyError, ArithmeticError):
                self.step()
                return
        self._good = None
        self._go_to(_State(Settings(), {}, np.asarray(self.mesh.vertices, np.float64).copy()))

    def _go_to(self, state: _State) -> None:
        self.settings, self.handles, self.vertices = state
        if not self.handles:
            self._marked = []
        self._start()
