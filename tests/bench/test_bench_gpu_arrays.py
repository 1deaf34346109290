"""The arrays of the benchmarks for GPUs: those of products, and what is asked of CuPy, by a stand-in that is strict."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from bench.__main__ import load_case
from bench.gpu import beside
from bench.gpu.bench import Bench
from bench.gpu.data import MAKERS, made
from bench.peers import cusparse
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.emulator.strict_cupy import Array, StrictCupy

SIZE = 9  # a multiple of three, see bench/peers/cusparse.py


@pytest.mark.parametrize("name", MAKERS)
def test_data_is_made_on_the_device_as_on_the_host(name: str) -> None:
    xp, case = StrictCupy(), load_case(name)
    there, here = made(case, 12, xp), made(case, 12, np)
    assert xp.downloaded == 0
    assert there.keys() == here.keys()
    for key, expected in here.items():
        found = there[key]
        assert isinstance(found, Array) == isinstance(expected, np.ndarray)
        assert found.dtype == expected.dtype if isinstance(found, Array) else found == expected
        np.testing.assert_allclose(found.get() if isinstance(found, Array) else found, expected)


def test_the_matrix_from_products_is_put_together_on_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def csr_matrix(arrays: tuple[Array, ...], shape: tuple[int, int]) -> Any:
        assert all(isinstance(a, Array) for a in arrays)
        return sparse.csr_matrix(tuple(a.get() for a in arrays), shape=shape)

    real = cusparse.sparse_module
    monkeypatch.setattr(
        cusparse, "sparse_module", lambda xp: real(xp) if xp is np else SimpleNamespace(csr_matrix=csr_matrix)
    )
    case = load_case("mesh_deformation")
    expected, found = (
        cusparse.from_products(Bench.of(case, made(case, SIZE, device.xp), "float32", device))
        for device in (EmulatedDevice(), EmulatedDevice(xp=StrictCupy()))
    )
    assert abs(found - expected).max() <= 1e-6 * abs(expected).max()


@pytest.mark.parametrize("name", ["image_warping", "mesh_deformation"])
def test_products_after_a_linear_solve_are_those_at_the_unknowns(name: str) -> None:
    case = load_case(name)
    bench = Bench.of(case, made(case, SIZE, np), "float32", EmulatedDevice())
    p = bench.random_vector()
    peer = cusparse.two_products(bench, bench.stacked(p), cusparse.jacobian(bench))
    bench.linear_solve(5)
    assert beside.relative_error(peer.to_host(peer.run()), bench.apply_jtj(p)) < 1e-5
