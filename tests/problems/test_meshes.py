from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trimesh import Trimesh

import optpy as op
from problems import meshes, pictures


def tetrahedron() -> Trimesh:
    vertices = np.concatenate([np.zeros((1, 3)), np.eye(3)])
    return Trimesh(vertices, [[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]], process=False)


@pytest.mark.parametrize("ending", meshes.FORMATS)
def test_written_meshes_read_back(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"mesh{ending}"
    meshes.write_mesh(path, tetrahedron())
    found = meshes.read_mesh(path)
    assert found.vertices.shape == (4, 3)
    assert found.faces.shape == (4, 3)
    assert found.volume == pytest.approx(1 / 6)
    if ending != ".stl":  # which has no vertices, only corners
        np.testing.assert_allclose(found.vertices, tetrahedron().vertices)
        np.testing.assert_array_equal(found.faces, tetrahedron().faces)


def test_corners_at_one_place_are_one_vertex_whatever_their_texture(tmp_path: Path) -> None:
    path = tmp_path / "textured.obj"
    path.write_text(
        "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 1 1 0\nvt 0 0\nvt 1 0\nvt 0 1\nvt 0.5 0.5\n"
        "f 1/1 2/2 3/3\nf 2/4 4/1 3/4\n"
    )  # fmt: skip
    found = meshes.read_mesh(path)
    assert found.vertices.shape == (4, 3)
    assert len(found.edges_unique) == 5


def test_vertices_without_a_face_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lonely.obj"
    path.write_text("v 5 5 5\nv 0 0 0\nv 1 0 0\nv 0 1 0\nf 2 3 4\n")
    assert meshes.read_mesh(path).vertices.max() == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.ply", b"no mesh at all"),
        ("b.obj", b"v 0 0 0\n"),
        ("c.xyzzy", b"x"),
        ("d.stl", b""),
        ("e.off", b"OFF\n9 9 9\n"),
    ],
)
def test_files_that_are_no_mesh_are_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(op.DataError, match=name):
        meshes.read_mesh(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gone\.obj"):
        meshes.read_mesh(tmp_path / "gone.obj")


def test_without_the_data_folder_there_is_no_data_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTPY_DATA", "")
    assert meshes.data_mesh("penguin.obj") is None


@pytest.mark.skipif(pictures.data_file("meshes/spot.obj") is None, reason="the data folder is not there")
def test_the_cow_has_the_vertices_of_its_description() -> None:
    cow = meshes.data_mesh("spot.obj")
    assert cow is not None
    assert (len(cow.vertices), len(cow.faces)) == (11533, 23062)


def test_the_pebble_is_closed_and_stands_upright() -> None:
    pebble = meshes.pebble(2)
    assert pebble.is_watertight
    assert pebble.volume > 0.1
    assert np.argmax(pebble.extents) == 1


def test_directed_edges_come_from_both_ends() -> None:
    edges = meshes.directed_edges(tetrahedron())
    assert sorted(map(tuple, edges.tolist())) == [(a, b) for a in range(4) for b in range(4) if a != b]


def test_a_moved_mesh_keeps_its_faces() -> None:
    up = meshes.moved(tetrahedron(), tetrahedron().vertices + [0, 1, 0])
    assert up.bounds[:, 1].tolist() == [1, 2]
    np.testing.assert_array_equal(up.faces, tetrahedron().faces)
