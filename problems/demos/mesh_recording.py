"""The mesh demo without a browser: a script drags its handles, and a film shows what follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from trimesh import Trimesh

import optpy as op

from .. import mesh_picture, meshes
from ..mesh_handles import HELD_COLOUR, MOVED_COLOUR
from ..mesh_picture import PLAIN, Colours
from .film import write_gif
from .handles import Handle, around, handle
from .mesh_work import ALLOWED, HandleAt, MeshWork
from .script import Moved, Script, Taken, read_script


@final
class MeshRecording:
    """A mesh that does what a script says.

    Args:
        work: whose mesh stands as it was.
        script: of handles and settings.

    Raises:
        DataError: the mesh does not have a vertex of the script, or two handles share one.
    """

    def __init__(self, work: MeshWork, script: Script) -> None:
        self._work = work
        self._script = script
        rest = work.vertices
        self._low, self._box = rest.min(axis=0), np.ptp(rest, axis=0)
        self._taken: dict[str, Handle] = {}
        for name, taken in script.handles.items():
            self._taken[name] = self._take(name, taken, rest)
        self.colours = self._colours()

    def _take(self, name: str, taken: Taken, rest: NDArray[np.float64]) -> Handle:
        if taken.point is not None:
            wanted = self._low + np.array(taken.point) * self._box
            vertex = int(np.linalg.norm(rest - wanted, axis=1).argmin())
        elif taken.vertex is not None and taken.vertex < len(rest):
            vertex = taken.vertex
        else:
            count = f"the mesh has {len(rest)} vertices, counted from 0"
            raise op.DataError(f"handles.{name}.vertex: there is no {taken.vertex}: {count}")
        region = around(rest, vertex, taken.radius * float(self._box.max()))
        for other, before in self._taken.items():
            shared = np.intersect1d(region, before.vertices)
            if shared.size:
                cure = "take smaller radii, or points farther apart"
                raise op.DataError(f"handles.{name} and handles.{other} share the vertex {shared[0]}: {cure}")
        return handle(rest, region, held=taken.held)

    def _colours(self) -> Colours:
        """(F, 3): faces whose corners all belong to one handle stand out."""
        faces = np.asarray(self._work.mesh.faces)
        colours = np.tile(PLAIN, (len(faces), 1))
        for taken in self._taken.values():
            inside = np.isin(faces, taken.vertices).all(axis=1)
            colours[inside] = HELD_COLOUR if taken.held else MOVED_COLOUR
        return colours

    def _moved(self, taken: Handle, moved: Moved) -> Handle:
        turn = Rotation.from_euler("xyz", moved.turn, degrees=True).as_quat()
        return taken.moved(np.asarray(taken.position) + moved.by * self._box.max(), np.roll(turn, 1))

    def frames(self) -> Iterator[Trimesh]:
        """The mesh at each frame of the film, after one frame of the demo.

        Raises:
            DataError: a solve has failed; the message has the frame.
        """
        numbers = {name: HandleAt(n) for n, name in enumerate(self._taken)}
        for n, frame in enumerate(self._script.frames()):
            inputs: dict[Any, Any] = {numbers[name]: taken for name, taken in self._taken.items() if taken.held}
            inputs |= {numbers[name]: self._moved(self._taken[name], moved) for name, moved in frame.moved.items()}
            try:
                self._work.change({**inputs, **frame.settings})
                self._work.step()
            except (op.OptpyError, ArithmeticError) as error:
                raise op.DataError(f"frame {n}, at {frame.time:g} seconds, cannot be solved: {error}") from error
            yield meshes.moved(self._work.mesh, self._work.vertices)


def record(work: MeshWork, path: Path, output: Path, size: int) -> int:
    """Writes the film of a script; the number of its frames.

    Args:
        work: whose mesh stands as it was.
        path: of the script.
        output: the GIF file.
        size: pixels along each side.

    Raises:
        DataError: it is no script, does not fit the mesh, or a solve fails.
        OSError: a file cannot be read or written.
    """
    script = read_script(path, ALLOWED)
    try:
        recording = MeshRecording(work, script)
        shapes = [*recording.frames()]
    except op.DataError as error:
        raise op.DataError(f"{path}: {error}") from error
    window = mesh_picture.window_of([np.asarray(shape.vertices) for shape in shapes])
    pictures = (mesh_picture.draw_one(shape, recording.colours, window, size) for shape in shapes)
    write_gif(output, pictures, script.frames_per_second)
    return len(shapes)
