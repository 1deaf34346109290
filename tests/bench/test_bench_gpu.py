"""The benchmarks for GPUs on the emulated device, at tiny sizes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench.__main__ import CASES, load_case
from bench.bandwidth import Copy
from bench.gpu import __main__ as program
from bench.gpu import beside, copies, everything, kernels, overhead, targets
from bench.gpu.bench import Bench
from bench.gpu.copies import GpuCopyMeter
from bench.gpu.counting import CountingDevice, Counts
from bench.gpu.data import MAKERS, made, torus
from bench.gpu.kernels import Budget, KernelTime
from bench.peers import PeerMissingError, cusparse, jax_products, torch_products
from bench.peers.products import PeerProduct
from bench.peers.residuals import RESIDUALS
from optpy.api.pipeline import derive_cuda
from optpy.kernels.runtime.cuda import available
from optpy.kernels.runtime.cuda.executor import Launch
from optpy.kernels.toolchain.cubin import read_cubin
from optpy.kernels.toolchain.nvrtc import compile_cuda
from optpy.linear.jacobi.jacobi import BLOCKS
from tests.support.deep import but_deep
from tests.support.emulator.emulated_device import EmulatedDevice

SIZE = 9  # a multiple of three, see bench/peers/cusparse.py
TINY = Budget(seconds=0.0, runs=1, repeat=1)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """The device that `find_device` finds; measurements are as short as they can be."""
    emulated = EmulatedDevice()
    monkeypatch.setattr(available, "find_device", lambda: emulated)
    monkeypatch.setattr(program, "QUICK", TINY)
    for module, short, long in ((kernels, "SHORT", "LONG"), (overhead, "_SHORT", "_LONG")):
        monkeypatch.setattr(module, short, 1)
        monkeypatch.setattr(module, long, 2)
    return emulated


def bench_of(name: str, device: EmulatedDevice, size: int = SIZE, dtype: str = "float32") -> Bench:
    case = load_case(name)
    return Bench.of(case, made(case, size, np), dtype, device)


# -- what is measured, and with what -----------------------------------------------------------------------------------


def test_what_is_asked_of_a_device_is_counted(device: EmulatedDevice) -> None:
    counting = CountingDevice(device)
    before = device.launches, device.cooperative_launches, device.host_reads, device.marks, device.waits
    case = load_case("laplacian")
    bench = Bench(case, made(case, SIZE, np), "float32", counting)
    bench.linear_solve(3)
    counting.mark().wait()
    after = device.launches, device.cooperative_launches, device.host_reads, device.marks, device.waits
    c = counting.counts
    assert (c.launches, c.cooperative, c.host_reads, c.marks, c.waits) == tuple(np.subtract(after, before))
    assert c.cooperative > 0
    assert c.host_reads > 0
    assert c - Counts(launches=1) == Counts(c.launches - 1, c.cooperative, c.host_reads, c.marks, c.waits)


def test_a_copy_copies_what_it_says(device: EmulatedDevice) -> None:
    meter = GpuCopyMeter(device, 2**16, 1e-3)
    meter.source[...] = 7.0
    assert meter.memory().bytes_moved == 2**16
    meter.target[...] = 0.0
    meter.by_kernel(1000)()
    assert (meter.target[:1000] == 7.0).all()
    assert (meter.target[1000:] == 0.0).all()
    assert meter.measure(8 * 1000).bytes_moved == 8 * 1000
    assert meter.measure(2**20).bytes_moved == 2**16


@pytest.mark.parametrize("name", MAKERS)
def test_data_that_is_made_fits_its_case(name: str) -> None:
    case = load_case(name)
    data, own = made(case, 12, np), case.data(12)
    assert {n: np.shape(v) for n, v in data.items()} == {n: np.shape(v) for n, v in own.items()}
    assert {n: v for n, v in data.items() if np.ndim(v) == 0} == {n: v for n, v in own.items() if np.ndim(v) == 0}
    assert case.elements(data) == case.elements(own)
    # As many unknowns are solved for, and there is something to do.
    counts = [np.count_nonzero(np.diff(case.energy.jacobian(d).tocsc().indptr)) for d in (data, own)]
    assert counts[0] == counts[1]
    assert case.energy.cost(data) > 0


def test_the_torus_has_six_neighbours_everywhere() -> None:
    _, edges = torus(7, np)
    assert (np.bincount(edges[:, 0]) == 6).all()
    pairs = set(map(tuple, edges.tolist()))
    assert len(pairs) == len(edges)
    assert {(b, a) for a, b in pairs} == pairs


def test_bytes_are_those_of_arrays_that_a_routine_needs(device: EmulatedDevice) -> None:
    bench = bench_of("laplacian", device)
    pixels = SIZE * SIZE
    found = {routine: kernels.bytes_moved(bench, routine) / pixels for routine in (*kernels.ROUTINES, "pcg")}
    # X and A are read; the gradient and the diagonal written.
    assert found == {"applyJTJ": 8, "evalJTF": 16, "cost": 8, "pcg": 36}


def test_an_iteration_of_small_problems_launches_nothing(device: EmulatedDevice) -> None:
    bench = bench_of("laplacian", device)
    rows = list(kernels.measure(bench, SIZE, GpuCopyMeter(device, 2**16, 1e-3), TINY))
    assert [(row.routine, row.launches, row.host_reads) for row in rows] == [
        ("applyJTJ", 1, 0),
        ("evalJTF", 1, 0),
        ("cost", 1, 0),
        ("pcg", 0, 0),
    ]
    found = overhead.measure(bench, rows[-1], TINY)
    assert found.cooperative
    assert found.overhead == pytest.approx(found.iteration - found.direction - found.apply - found.update)


def test_the_work_of_an_iteration_is_done_as_often_as_asked(device: EmulatedDevice) -> None:
    # A loop of n products with one and the same p leaves what one leaves.
    bench = bench_of("laplacian", device)
    row = list(kernels.measure(bench, SIZE, GpuCopyMeter(device, 2**16, 1e-3), TINY))[-1]
    p = bench.random_vector()
    expected = bench.apply_jtj(p)["X"]
    launched: list[tuple[str, int]] = []
    own = bench.executor.launch

    def recorded(launch: Launch, **options: Any) -> None:
        launched.append((launch.kernel.name, int(bench.executor.context.limits.max_iterations)))
        own(launch, **options)

    bench.executor.launch = recorded  # type: ignore[method-assign]
    overhead.measure(bench, row, TINY)
    loops = [(name, passes) for name, passes in launched if name.startswith("work_")]
    assert loops == [(f"work_{n}", k) for n in ("direction", "apply", "update") for k in (1, 1, 2)]
    np.testing.assert_array_equal(bench.apply_jtj(p)["X"], expected)


# -- the peers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["poisson", "mesh_deformation"])
def test_the_matrix_from_products_is_that_of_the_jacobian(name: str, device: EmulatedDevice) -> None:
    bench = bench_of(name, device)
    J = cusparse.jacobian(bench)
    expected, found = cusparse.normal_matrix(bench, J), cusparse.from_products(bench)
    assert found.has_canonical_format
    assert found.nnz == expected.nnz
    assert abs(found - expected).max() <= 1e-6 * abs(expected).max()
    p = bench.random_vector()
    reference = bench.apply_jtj(p)
    for peer in (
        cusparse.two_products(bench, bench.stacked(p), J),
        cusparse.formed(bench, bench.stacked(p), found, ""),
    ):
        assert beside.relative_error(peer.to_host(peer.run()), reference) < 1e-5
        assert peer.nbytes > 8 * expected.nnz


def test_a_matrix_that_products_do_not_give_is_refused(device: EmulatedDevice) -> None:
    with pytest.raises(ValueError, match="mesh_deformation at 10 x 10: its J\\^T J cannot be had"):
        cusparse.from_products(bench_of("mesh_deformation", device, 10))


@pytest.mark.parametrize("name", RESIDUALS)
def test_residuals_by_hand_are_those_of_the_energy(name: str) -> None:
    case, data = load_case(name), disturbed(name)
    found = RESIDUALS[name][0](np, data, data)
    assert 0.5 * sum(float(np.sum(r.astype(np.float64) ** 2)) for r in found) == pytest.approx(case.energy.cost(data))


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # PyTorch warns of itself
@pytest.mark.parametrize("module", [jax_products, torch_products])
@pytest.mark.parametrize("name", RESIDUALS)
def test_products_by_automatic_differentiation(name: str, module: Any) -> None:
    case, data = load_case(name), disturbed(name)
    J = case.energy.jacobian(data)
    p = np.random.default_rng(1).standard_normal(J.shape[1]) * (np.diff(J.tocsc().indptr) > 0)
    parts, begin = {}, 0
    for u in case.energy.problem.unknowns:
        shape = data[u.name].shape
        parts[u.name] = p[begin : begin + data[u.name].size].reshape(shape).astype(np.float32)
        begin += data[u.name].size
    extra = {"compiled": False} if module is torch_products else {}
    try:
        peer: PeerProduct = module.product(name, data, parts, device="cpu", **extra)
    except PeerMissingError as missing:
        pytest.skip(str(missing))
    result = peer.run()
    peer.wait(result)
    found = peer.to_host(result)
    expected = J.T @ (J @ p)
    got = np.concatenate([found[u.name].ravel() for u in case.energy.problem.unknowns])
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


def disturbed(name: str) -> dict[str, Any]:
    """Away from the start, and with a hole in the picture."""
    case = load_case(name)
    data, rng = made(case, SIZE, np), np.random.default_rng(0)
    for u in case.energy.problem.unknowns:
        data[u.name] = (data[u.name] + 0.3 * rng.standard_normal(data[u.name].shape)).astype(np.float32)
    if "Mask" in data:
        data["Mask"][4:6, 3:7] = 255
    return data


def test_a_peer_that_computes_something_else_is_not_timed(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of("laplacian", device)

    def wrong(bench: Bench, p: Any, J: Any) -> PeerProduct:
        return PeerProduct("wrong", lambda: 1.01 * (J.T @ (J @ p)), lambda _: None, bench.split)

    monkeypatch.setattr(cusparse, "two_products", wrong)
    monkeypatch.setattr(jax_products, "product", failing)
    rows = {row.peer: row for row in beside.measure(bench, SIZE, TINY)}
    assert rows["wrong"].seconds is None
    assert rows["wrong"].note == "computes something else: relative error 1.0e-02"
    formed = rows["cuSPARSE, J^T J formed (from J)"]
    assert formed.seconds is not None
    assert formed.times_faster == formed.seconds / formed.optpy_seconds
    assert rows[jax_products.NAME].note == "MemoryError: no room for 3 GiB"


def failing(*arguments: object, **options: object) -> PeerProduct:
    raise MemoryError("no room for 3 GiB")


# -- the commands ------------------------------------------------------------------------------------------------------


def test_the_program_leaves_json_and_prints_tables(
    device: EmulatedDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = f"laplacian --quick --sizes {SIZE} --solve-sizes {SIZE} --threads 1 --output {tmp_path}"
    program.main(arguments.split())
    record = json.loads((tmp_path / "laplacian_gpu.json").read_text())
    assert [row["routine"] for row in record["kernels"]] == ["applyJTJ", "evalJTF", "cost", "pcg"]
    assert record["machine"]["device"] == "emulated GPU (sm_90)"
    assert len(record["overhead"]) == 1
    assert record["times_faster_than_the_cpu"].keys() == {f"laplacian {SIZE}"}
    assert {row["peer"] for row in record["beside"]} >= {"cuSPARSE, J^T (J p)", "cuSPARSE, J^T J formed (from J)"}
    assert [row["device"] for row in record["solves"]] == [
        "cuda, auto",
        "cuda, block_jacobi",
        "cpu, 1 threads, auto",
        "cpu, 1 threads, block_jacobi",
    ]
    costs = [row["cost"] for row in record["solves"]]
    assert costs[1:] == pytest.approx([costs[0]] * 3, rel=1e-3)
    assert record["solves"][0]["launches"] > record["solves"][0]["host_reads"] > 0
    assert record["skipped"] == []
    printed = capsys.readouterr().out
    for text in ("Gpixel/s", "of copy of same size", "an iteration of conjugate gradients", "J^T J p", "whole solves"):
        assert text in printed
    assert "pip install 'jax[cuda12]'" in printed or "JAX, jvp and vjp, jit" in printed


def test_what_does_not_fit_is_skipped_with_its_reason(
    device: EmulatedDevice, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device.free_bytes = 100_000
    program.main(f"laplacian --quick --sizes {SIZE} 300 --parts kernels --output {tmp_path}".split())
    record = json.loads((tmp_path / "laplacian_gpu.json").read_text())
    assert {row["size"] for row in record["kernels"]} == {SIZE}
    (skipped,) = record["skipped"]
    assert skipped.startswith("laplacian 300²: DeviceMemoryError: ")
    assert f"skipped: {skipped}" in capsys.readouterr().out


def test_nothing_begins_when_no_time_is_left(device: EmulatedDevice, tmp_path: Path) -> None:
    program.main(f"laplacian --quick --seconds 1e-9 --sizes {SIZE} --output {tmp_path}".split())
    record = json.loads((tmp_path / "laplacian_gpu.json").read_text())
    assert record["kernels"] == []
    assert {text.split(": ", 1)[1] for text in record["skipped"]} == {"TimeoutError: no time is left"}


def test_everything_goes_on_after_a_failure(
    device: EmulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = everything.steps

    def some(e: everything.Everything) -> list[Any]:
        names = [name for name, _ in real(e)]
        for name in (
            *everything.MAIN,
            "tests",
            "memcheck",
            "registers",
            *(f"sweep of {n}" for n in CASES),
        ):
            assert name in names
        kept = dict(real(e))
        program_of = lambda: e.output_of([sys.executable, "-c", "print('2 passed')"], 30.0)  # noqa: E731
        return [
            ("broken", lambda: failing().name),
            ("said", program_of),
            *[(n, kept[n]) for n in ["sweep of laplacian"]],
        ]

    monkeypatch.setattr(everything, "steps", some)
    program.main(f"--all --quick --output {tmp_path}".split())
    record = json.loads((tmp_path / "everything.json").read_text())
    broken, said, sweep = record["steps"]
    assert "FAILED: MemoryError: no room for 3 GiB" in broken
    assert said.endswith("status 0: 2 passed")
    assert "24² applyJTJ" in sweep
    assert {row["case"] for row in record["kernels"]} == {"laplacian"}
    assert "laplacian, float32" in (tmp_path / "everything.txt").read_text()
    printed = capsys.readouterr().out
    assert "not measured: image_warping 4096², applyJTJ: of copy bandwidth" in printed
    assert broken in printed


def test_a_case_is_not_chosen_twice(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in (
        (["sudoku"], "no case 'sudoku'"),
        (["--all", "poisson"], "--all chooses the cases itself"),
    ):
        with pytest.raises(SystemExit):
            program.parse(arguments)
        assert message in capsys.readouterr().err


def test_sizes_of_a_sweep() -> None:
    assert program.sizes_of(load_case("poisson"), None)[-1] == 16384
    meshes = program.sizes_of(load_case("mesh_deformation"), None)
    assert 6 * meshes[-1] ** 2 > 10_000_000
    assert all(size % 3 == 0 for size in meshes if size > 1000)
    assert program.sizes_of(load_case("cotangent_smoothing"), [128, 4096, 8192]) == [128, 256]


def test_targets() -> None:
    def row(routine: str, seconds: float) -> KernelTime:
        copy = Copy(10**9, 1e-3, "kernel")
        return KernelTime(
            "poisson", routine, 4096, "float32", "pixel", 4096**2, 0, 10**9, seconds, seconds, copy, copy, 1, 0
        )  # fmt: skip

    faster = beside.Beside("poisson", 4096, "float32", "cuSPARSE, J^T J formed (from J)", 1.0, 6.0, 0.0, 1)
    also = beside.Beside("poisson", 4096, "float32", "cuSPARSE, J^T (J p)", 1.0, 4.5, 0.0, 1)
    found = targets.targets([row("applyJTJ", 1.25e-3), row("pcg", 2e-3)], [faster, also], [], {"poisson 4096": 150.0})
    known = {t.what: (t.found, t.reached) for t in found if t.found is not None}
    assert known == {
        "poisson 4096², applyJTJ: of copy bandwidth": (pytest.approx(0.8), True),
        "poisson 4096², pcg: of copy bandwidth": (pytest.approx(0.5), False),
        # The faster of cuSPARSE's ways counts.
        "poisson 4096², J^T J p: times faster than cuSPARSE": (4.5, False),
        "poisson 4096², applyJTJ: times faster than the CPU": (150.0, True),
    }
    assert all(t.reached is None for t in found if t.found is None)


@pytest.mark.nvrtc
@pytest.mark.parametrize("architecture", but_deep(["sm_75", "sm_90"], ["sm_90"]))
def test_what_is_measured_with_compiles_for_gpus(architecture: str) -> None:
    pytest.importorskip("cupy")
    assert compile_cuda(copies.SOURCE, architecture, werror=True).image
    solver = derive_cuda(load_case("mesh_deformation").energy.problem, "float32").listing
    found = read_cubin(compile_cuda(overhead.source(solver, BLOCKS, True, "int"), architecture).image)
    lines = read_cubin(compile_cuda(BLOCKS.source(solver, True, "int"), architecture).image)
    # Without the sums over blocks the loop around a line takes a few registers less; more would be missing if the
    # compiler had found the line to be useless.
    for name in ("direction", "update"):
        assert found[f"work_{name}"].registers >= 0.6 * lines[f"pcg_{name}"].registers
    assert found["work_apply"].registers >= 32
