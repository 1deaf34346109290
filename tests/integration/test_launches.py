"""How a solve uses a GPU: launches, reads by the host, and results that no order of blocks changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import optpy as op
from bench.registers import VARIANTS
from optpy.api.pipeline import derive_cuda
from optpy.ir import Coupling, Target
from optpy.linear.multigrid.cuda_levels import multigrid_source
from optpy.linear.pcg import cuda_kernels, queued
from tests.integration.test_solving_on_device import OVERSHOOTING, OVERSHOOTING_DATA, Options
from tests.support.applications import ENERGIES
from tests.support.deep import but_deep
from tests.support.emulator.emulated_device import EmulatedDevice
from tests.support.meshes import mesh_arap_data, mesh_arap_energy
from tests.support.schedules import by_hand
from tests.support.warping import arap_data, arap_energy

WARP, MESH = arap_energy(), mesh_arap_energy()

# -- launches and reads ----------------------------------------------------------------------------------------------


CASES = {
    "grid": (WARP, arap_data(9, 12), "block_jacobi", 1),
    "mesh": (MESH, mesh_arap_data(), "auto", 1),
    # Whether old levels are worn, how the solve has ended, what of the residual is left, and what follows.
    "multigrid": (WARP, arap_data(9, 12), "multigrid", 5),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("cooperative", [0, 2**20], ids=["stages", "cooperative"])
def test_the_host_reads_once_in_a_nonlinear_iteration(
    emulated: EmulatedDevice, case: str, cooperative: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a few times with multigrid."""
    monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
    monkeypatch.setattr(queued, "SLICE", 1e9)  # an emulated GPU is slow
    energy, data, preconditioner, most = CASES[case]
    options: Options = dict(initial_radius=1e16, preconditioner=preconditioner)
    session = op.compile(energy, "cuda", np.float64).start(data, **options)
    session.step()
    seen = set()
    for _ in range(6):
        reads = emulated.host_reads
        record = session.step()
        assert 1 <= emulated.host_reads - reads <= most
        seen.add(record.accepted)
    assert True in seen


def test_a_rejected_step_costs_no_further_read(emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "SLICE", 1e9)
    session = op.compile(OVERSHOOTING, "cuda", np.float64).start(OVERSHOOTING_DATA)
    accepted = [session.step().accepted]
    for _ in range(8):
        reads = emulated.host_reads
        accepted.append(session.step().accepted)
        assert emulated.host_reads - reads == 1
    assert {*accepted} == {True, False}


def test_launches_of_a_nonlinear_iteration(emulated: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queued, "SLICE", 1e9)
    counts = {}
    for cooperative in (0, 2**20):
        monkeypatch.setattr(cuda_kernels, "COOPERATIVE", cooperative)
        options: Options = dict(preconditioner="jacobi", eta=0.0, linear_iterations=25)
        session = op.compile(WARP, "cuda", np.float64).start(arap_data(9, 12), **options)
        session.step()
        before = emulated.launches, emulated.cooperative_launches
        record = session.step()
        assert (record.accepted, record.linear_iterations) == (True, 25)
        counts[cooperative] = emulated.launches - before[0], emulated.cooperative_launches - before[1]
    others = counts[2**20][0] - 1
    assert counts[2**20][1] == 1
    assert others <= 8  # damping, the model's cost, the step, its cost, the linearisation there
    assert counts[0] == (others + 1 + 3 * 25 + 1, 0)


# -- determinism -----------------------------------------------------------------------------------------------------


def costs_from(device: EmulatedDevice, launches: int, deterministic: bool) -> list[float]:
    """With the order of blocks that comes after so many launches."""
    device.launches = launches
    result = op.solve(MESH, mesh_arap_data(12, 20), "cuda", np.float32, deterministic, max_iterations=3)
    return [r.cost for r in result.iterations]


def test_no_result_depends_on_the_order_of_blocks_if_it_shall_not(emulated: EmulatedDevice) -> None:
    first, *others = (costs_from(emulated, n, deterministic=True) for n in (0, 1013, 50021))
    assert all(other == first for other in others)


ADDITION = re.compile(r"optpy_add(\(&f|<)")
"""To a number of a field, or to several side by side."""


@pytest.mark.applications
@pytest.mark.parametrize("name", but_deep(ENERGIES, ("image_warping", "mesh_deformation so3", "pose_graph plane")))
def test_deterministic_sources_add_nothing_by_atomics(name: str) -> None:
    for dtype in ("float32", "float64"):
        program = derive_cuda(ENERGIES[name].problem, dtype, target=Target.DETERMINISTIC_GPU).listing
        for source in sources_of(program):
            assert not ADDITION.search(source)
            assert source.count("atomicAdd(&") == source.count("atomicAdd(&c->sync->")
    over_edges = bool(ENERGIES[name].graphs)
    scattered = "".join(
        sources_of(derive_cuda(ENERGIES[name].problem, "float32", by_hand(ENERGIES[name], "scatter")).listing)
    )
    assert bool(ADDITION.search(scattered)) == over_edges


def sources_of(program: Any) -> Iterator[str]:
    yield program.routines_source("int")
    for variant in VARIANTS:
        for damped in (False, True):
            if variant.start in program.phases:
                yield variant.source(program, damped, "int")
    if isinstance(program.coupling, Coupling):
        yield multigrid_source(program.coupling, program.dtype)


def test_deterministic_must_be_true_or_false(emulated: EmulatedDevice) -> None:
    with pytest.raises(op.OptionError, match="'deterministic' must be True or False, not 1"):
        op.compile(WARP, "cuda", deterministic=1)  # type: ignore[arg-type]
