"""Films of the mesh demo, by scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image, ImageSequence

import optpy as op
from problems import meshes
from problems.demos import mesh_recording
from problems.demos.mesh_recording import MeshRecording
from problems.demos.mesh_work import ALLOWED, MeshWork
from problems.demos.script import read_script

pytestmark = pytest.mark.applications

MESH = meshes.pebble(2)
SHIPPED = Path(mesh_recording.__file__).with_name("drag.json")
SCRIPT: dict[str, Any] = {
    "frames_per_second": 4,
    "settings": {"w_fit": 100, "nonlinear": 5},
    "handles": {
        "foot": {"point": [0.5, 0, 0.5], "radius": 0.2, "held": True},
        "head": {"point": [0.5, 1, 0.5]},
    },
    "moments": [
        {"time": 0},
        {"time": 1, "move": {"head": {"by": [0.2, 0, 0], "turn": [0, 40, 0]}}, "settings": {"w_reg": 2}},
        {"time": 1.5},
        {"time": 2, "move": {"head": {"by": [0, 0, 0]}}},
    ],
}


def written(folder: Path, script: Any) -> Path:
    file = folder / "drag.json"
    file.write_text(script if isinstance(script, str) else json.dumps(script))
    return file


def test_handles_go_evenly_from_moment_to_moment(tmp_path: Path) -> None:
    frames = [*read_script(written(tmp_path, SCRIPT), ALLOWED).frames()]
    assert [f.time for f in frames] == [n / 4 for n in range(9)]
    ways = [f.moved["head"].by[0] for f in frames]
    np.testing.assert_allclose(ways, [0, 0.05, 0.1, 0.15, 0.2, 0.2, 0.2, 0.1, 0])
    assert [f.moved["head"].turn[1] for f in frames][2:5] == [20, 30, 40]
    settings = {n: f.settings for n, f in enumerate(frames) if f.settings}
    assert settings == {0: {"w_fit": 100, "nonlinear": 5}, 4: {"w_reg": 2}}
    assert "foot" not in frames[0].moved


def test_the_mesh_follows_the_script(tmp_path: Path) -> None:
    work = MeshWork(MESH)
    recording = MeshRecording(work, read_script(written(tmp_path, SCRIPT), ALLOWED))
    shapes = [np.asarray(shape.vertices) for shape in recording.frames()]
    head = int(MESH.vertices[:, 1].argmax())
    way = [float(shape[head, 0] - MESH.vertices[head, 0]) for shape in shapes]
    wanted = 0.2 * np.ptp(MESH.vertices, axis=0).max()
    assert way[4] == pytest.approx(wanted, abs=0.1 * wanted)
    assert abs(way[-1]) < 0.5 * wanted
    foot = int(MESH.vertices[:, 1].argmin())
    assert max(np.abs(shape[foot] - MESH.vertices[foot]).max() for shape in shapes) < 0.02
    assert len({tuple(colour) for colour in recording.colours}) == 2  # one vertex alone has no face


def test_the_program_writes_a_film_that_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = pytest.importorskip("problems.demos.mesh", reason="viser is not installed").main
    mesh = tmp_path / "pebble.ply"
    meshes.write_mesh(mesh, MESH)
    written(tmp_path, SCRIPT)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, ["--mesh", str(mesh), "--script", "drag.json", "--size", "64"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("9 frames: ")
    with Image.open(tmp_path / "drag.gif") as film:
        pictures = [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(film)]
    assert 5 <= len(pictures) <= 9  # alike ones are shown longer
    assert pictures[0].shape == (64, 64, 3)
    assert (np.abs(pictures[4] - pictures[0]).max(axis=2) > 50).sum() > 20


def test_the_script_that_comes_with_the_demos_fits_any_mesh() -> None:
    script = read_script(SHIPPED, ALLOWED)
    recording = MeshRecording(MeshWork(MESH), script)
    assert len([*script.frames()]) > 40
    assert len({tuple(colour) for colour in recording.colours}) == 3


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--output", "film.gif"], "name one by --script"),
        (["--script", "drag.json", "--output", "film.png"], "'film.png' does not end in .gif"),
        (["--script", "missing.json"], "missing.json"),
    ],
)
def test_options_that_do_not_go_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], why: str
) -> None:
    main = pytest.importorskip("problems.demos.mesh", reason="viser is not installed").main
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(main, options)
    assert done.exit_code != 0
    assert why in done.stderr


def changed(**entries: Any) -> dict[str, Any]:
    return {**SCRIPT, **entries}


HEAD = {"head": {"point": [0.5, 1, 0.5]}}


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ('{"handles": \n oops}', r"drag\.json:2:2: this is no JSON"),
        ([1], r"the script: a table in braces is needed here, not \[1\]"),
        ({"handles": {}}, "the script: 'moments' is missing"),
        (changed(handels={}), "there is no 'handels' here; did you mean 'handles'"),
        (changed(frames_per_second=0), "frames_per_second: a number from 0.1 to 50 is needed here, not 0"),
        (changed(handles={"head": {}}), 'handles.head: it needs either "vertex", a number, or "point"'),
        (changed(handles={"head": {"vertex": 1.5}}), "handles.head.vertex: a whole number from 0"),
        (changed(handles={"head": {"point": [1, 2]}}), r"handles.head.point: three numbers .* not \[1, 2\]"),
        (changed(handles={"head": {"vertex": 1, "held": 1}}), "handles.head.held: true or false is needed here, not 1"),
        (changed(moments=[]), "moments: a list of moments is needed here, the first at time 0"),
        (changed(moments=[{"time": 1}]), r"moments\[0\].time: the first moment is at 0, not at 1"),
        (changed(moments=[{"time": 0}, {"time": 0}]), r"moments\[1\].time: 0 is not later than the moment before"),
        (changed(moments=[{"time": 0}, {"time": 9e5}]), r"moments\[1\].time: 900000 seconds are more than 2000 frames"),
        (changed(moments=[{"time": 0, "move": {"hed": {}}}]), r"moments\[0\].move: there is no 'hed' .*'head'"),
        (changed(moments=[{"time": 0, "move": {"foot": {}}}]), r"moments\[0\].move: there is no 'foot'"),
        (
            changed(moments=[{"time": 0, "move": {"head": {"by": [0, True, 0]}}}]),
            r"moments\[0\].move.head.by: three numbers are needed here, such as \[0.3, 0, 0\], not \[0, true, 0\]",
        ),
        (changed(settings={"w_ft": 1}), "settings: there is no 'w_ft' here; did you mean 'w_fit'"),
        (
            changed(settings={"model": "rigid"}),
            'settings.model: one of euler, so3, embedded is needed here, not "rigid"',
        ),
        (
            changed(settings={"nonlinear": 2.5}),
            "settings.nonlinear: a whole number from 1 to 10 is needed",
        ),
    ],
)
def test_scripts_that_are_wrong(tmp_path: Path, script: Any, why: str) -> None:
    with pytest.raises(op.DataError, match=why):
        read_script(written(tmp_path, script), ALLOWED)


@pytest.mark.parametrize(
    ("handles", "why"),
    [
        ({"head": {"vertex": 162}}, "handles.head.vertex: there is no 162: the mesh has 162 vertices"),
        (
            {"head": {"vertex": 3}, "foot": {"vertex": 3}},
            "handles.foot and handles.head share the vertex 3: take smaller",
        ),
    ],
)
def test_scripts_that_do_not_fit_the_mesh(tmp_path: Path, handles: Any, why: str) -> None:
    file = written(tmp_path, changed(handles=handles, moments=[{"time": 0}]))
    with pytest.raises(op.DataError, match=why):
        mesh_recording.record(MeshWork(MESH), file, tmp_path / "film.gif", 32)
    assert not (tmp_path / "film.gif").exists()


def test_a_frame_that_cannot_be_solved_is_named(tmp_path: Path) -> None:
    far = [{"time": 0}, {"time": 1, "move": {"head": {"by": [1e30, 0, 0]}}}]
    file = written(tmp_path, changed(moments=far))
    with pytest.raises(op.DataError, match=r"drag\.json: frame 1, at 0.25 seconds, cannot be solved: .*overflow"):
        mesh_recording.record(MeshWork(MESH), file, tmp_path / "film.gif", 32)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 100_000, "too deeply"),
        ('{"handles": {}, "handles": {}, "moments": [{"time": 0}]}', "'handles' stands twice"),
        ('{"handles": {}, "moments": [{"time": 1' + "0" * 5000 + "}]}", "a number of 5001 digits"),
        (
            '{"handles": {"a": {"vertex": 1}}, "moments": [{"time": 0, "move": {"a": null}}]}',
            r"moments\[0\]\.move\.a: a table",
        ),
    ],
)
def test_files_that_json_takes_and_a_script_does_not(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(op.DataError, match=why):
        read_script(path, ALLOWED)
