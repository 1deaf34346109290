"""Fields: the vectors of the solver say by their identity which they are, and have the layout that it asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optpy.energy.derive.vectors import block_channel, candidate, vector
from optpy.ir import Extent, Field, ManifoldShape, Role, Vector, VectorKind, tangent

N = Extent("N")
X = Field("X", (N,), 3, "real", Role.UNKNOWN, channel_axis=True)
R = Field("R", (N,), 4, "real", Role.UNKNOWN, channel_axis=True, manifold=ManifoldShape("SO3", 4, 3))


@pytest.mark.parametrize("kind", [k for k in VectorKind if k is not VectorKind.CANDIDATE])
def test_vectors_have_the_layout_of_the_tangent(kind: VectorKind) -> None:
    for u, channels in ((X, 3), (R, 3)):
        found = vector(kind, u)
        assert (found.name, found.dims, found.channels, found.role) == (f"{kind}.{u.name}", (N,), channels, Role.VECTOR)
        assert found.identity == Vector(kind, tangent(u)) == vector(kind, tangent(u)).identity


def test_a_candidate_is_stored_as_its_unknown() -> None:
    assert candidate(R).channels == R.channels == 4
    assert candidate(R).identity == Vector(VectorKind.CANDIDATE, R)


def test_a_block_is_stored_as_its_upper_triangle() -> None:
    blocks, diagonal = vector(VectorKind.C, R, blocks=True), vector(VectorKind.C, R)
    entries = {block_channel(R, a, b) for a in range(3) for b in range(3)}
    assert entries == set(range(blocks.channels))
    assert blocks != diagonal
    assert diagonal.name == blocks.name


def test_a_vector_of_another_kind_is_found_by_its_identity() -> None:
    p = vector(VectorKind.P, R)
    assert p.identity is not None
    assert replace(p.identity, kind=VectorKind.DELTA).field == vector(VectorKind.DELTA, R)
    assert X.identity is None
