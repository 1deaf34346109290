"""A photograph that follows its handles as rigidly as possible, step by step."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

import optpy as op

from ..forward_warp import forward_warp
from ..image_warping import Handle, constrain, energy, pixel_places
from ..pictures import Picture
from .quick_warp import QuickWarp
from .solving import Step

Device = Literal["auto", "cpu", "cuda"]

MARGIN: Final = 1 / 8
"""Of the canvas around the photograph, by its longer side."""


@final
@dataclass(frozen=True, slots=True)
class WarpSettings:
    """How one frame is solved.

    Attributes:
        method: "gn" or "lm".
        preconditioner: "jacobi" or "multigrid".
        nonlinear: iterations of a frame.
        linear: iterations of each of them.
        w_fit: weight of the handles.
        w_reg: weight of rigidity.
        radius: of the handles' discs, in pixels.
        hold_border: the photograph's border stays where it is.
    """

    method: str = "lm"
    preconditioner: str = "jacobi"
    nonlinear: int = 1
    linear: int = 30
    w_fit: float = 10.0
    w_reg: float = 0.1
    radius: float = 4.0
    hold_border: bool = False


_NEW_SESSION: Final = ("method", "preconditioner", "linear")
"""Settings that a session begins with."""


@final
@dataclass(frozen=True, slots=True)
class GripAt:
    """The input under which the handle on a pixel is put: a `Grip`, or None to let it go."""

    row: int
    column: int


class Grip(NamedTuple):
    """Where a handle pulls its disc."""

    x: float
    """In pixels of the photograph, to the right."""
    y: float
    """Downward."""
    turn: float = 0.0
    """Degrees, clockwise on the screen."""


@final
@dataclass(slots=True)
class ImageWork:
    """As-rigid-as-possible warping of a photograph, by the energy of `problems.image_warping`.

    Inputs are ``GripAt(row, column)``, a `Grip` or None, and ``WarpSettings`` by the names of their fields; "reset"
    puts the photograph back as it was, without handles; "undo", a number, takes back as many changes of handles that
    were marked by "mark" as it is larger than before; "stamp" is kept, so that who draws knows which inputs were seen.

    Attributes:
        picture: (H, W, 3), 0 to 1, as it was.
        mask: (H, W), 0 where a pixel takes part.
        device: as ``op.compile`` takes it.
        settings: in force.
        grips: the handles, by the pixels that they hold.
        position: (H, W, 2): where each pixel stands, (x, y) in pixels of the photograph.
        warp: draws it, on the photograph with a margin.
        canvas: (H + 2 margin, W + 2 margin, 3), as it was drawn last.
        stamp: of the last inputs that were seen.
    """

    picture: Picture
    mask: NDArray[np.uint8]
    device: Device = "cpu"
    settings: WarpSettings = WarpSettings()
    grips: dict[GripAt, Grip] = field(default_factory=dict)
    position: NDArray[np.float32] = field(init=False)
    warp: QuickWarp = field(init=False)
    canvas: NDArray[np.uint8] = field(init=False)
    stamp: int = 0
    _undone: int = 0
    _marked: list[dict[GripAt, Grip]] = field(default_factory=list)
    _identity: NDArray[np.float32] = field(init=False)
    _session: op.Session = field(init=False)
    _solver: op.Solver = field(init=False)

    def __post_init__(self) -> None:
        height, width = self.mask.shape
        self._identity = pixel_places(height, width)
        self.warp = QuickWarp(self.picture, self.mask == 0, round(MARGIN * max(height, width)))
        self._solver = op.compile(energy, device=self.device, dtype=np.float32)
        self.recover()

    def change(self, inputs: Mapping[Hashable, Any]) -> None:
        """Take new handles and settings."""
        self.stamp = inputs.get("stamp", self.stamp)
        given = {str(name): value for name, value in inputs.items() if name in WarpSettings.__slots__}
        grips = self._changed_grips(inputs)
        if inputs.get("mark"):
            self._marked.append(dict(self.grips))
        self.grips = grips
        self._undo(inputs.get("undo", self._undone))
        changed = {name for name, value in given.items() if value != getattr(self.settings, name)}
        self.settings = replace(self.settings, **given)
        if inputs.get("reset"):
            self.recover()
        elif changed.intersection(_NEW_SESSION):
            self._start(self._session["Angle"])
        else:
            self._session.update(Constraints=self._constraints(), w_fit=self.settings.w_fit, w_reg=self.settings.w_reg)

    def _undo(self, total: int) -> None:
        for _ in range(total - self._undone):
            if self._marked:
                self.grips = self._marked.pop()
        self._undone = total

    def _changed_grips(self, inputs: Mapping[Hashable, Any]) -> dict[GripAt, Grip]:
        grips = dict(self.grips)
        for key, grip in inputs.items():
            if not isinstance(key, GripAt):
                continue
            height, width = self.mask.shape
            if not (0 <= key.row < height and 0 <= key.column < width):
                raise ValueError(f"the photograph has no pixel in row {key.row}, column {key.column}")
            if self.mask[key.row, key.column] != 0:
                raise ValueError(f"the pixel in row {key.row}, column {key.column} takes no part: the mask says so")
            if grip is None:
                grips.pop(key, None)
            elif np.isfinite(grip).all():
                grips[key] = Grip(*grip)
            else:
                raise ValueError(f"a handle is pulled to {tuple(grip)}, which is no place")
        return grips

    @property
    def _shift(self) -> float:
        """Is added to all places that the energy sees: it takes negative ones for "no handle"."""
        return float(2 * max(self.mask.shape))

    def _constraints(self) -> NDArray[np.float32]:
        constraints = np.full_like(self._identity, -1.0)
        if self.settings.hold_border:
            border = np.ones(self.mask.shape, np.bool_)
            border[1:-1, 1:-1] = False
            constraints[border] = self._identity[border] + self._shift
        farthest = max(self.mask.shape) / 2  # out of the canvas, and all of a disc still positive
        height, width = self.mask.shape
        for at, grip in self.grips.items():
            x = float(np.clip(grip.x, -farthest, width + farthest))
            y = float(np.clip(grip.y, -farthest, height + farthest))
            target = x + self._shift, y + self._shift
            constrain(
                constraints,
                self._identity,
                Handle((at.column, at.row), target, min(self.settings.radius, farthest), grip.turn),
            )
        return constraints

    def _start(self, angle: NDArray[np.floating]) -> None:
        s = self.settings
        data = dict(
            Offset=self.position + np.float32(self._shift),
            Angle=np.asarray(angle, np.float32),
            UrShape=self._identity,
            Constraints=self._constraints(),
            Mask=self.mask,
            w_fit=s.w_fit,
            w_reg=s.w_reg,
        )
        self._session = self._solver.start(
            data, method=s.method, linear_iterations=s.linear, preconditioner=s.preconditioner, eta=0.0
        )

    @property
    def device_text(self) -> str:
        """Where it is solved, and why there."""
        return f"{self._solver.device}: {self._solver.device_reason}"

    def step(self) -> Step:
        """As many iterations as a frame has; then the photograph is drawn."""
        linear = 0
        for _ in range(self.settings.nonlinear):
            record = self._session.step()
            linear += record.linear_iterations
            if self._session.status.finished:
                break
        position = np.asarray(self._session["Offset"], np.float32) - np.float32(self._shift)
        if not (np.isfinite(record.cost) and np.isfinite(position).all()):
            raise ArithmeticError(self._session.result().message)
        self.position = position
        self.canvas = self.warp.drawn(self.position)
        done = self._session.status.finished
        return Step(record.cost, linear, done, self._session.status.value if done else "")

    def recover(self) -> None:
        """Start again from the photograph as it was, with no handle."""
        self.grips, self._marked = {}, []
        self.position = self._identity.copy()
        self.canvas = self.warp.drawn(self.position)
        self._start(np.zeros(self.mask.shape, np.float32))

    def exported(self) -> Picture:
        """(H, W, 3): the photograph as it stands, drawn with smooth edges; takes much longer than a frame."""
        return forward_warp(self.picture, self.position, self.mask == 0)
