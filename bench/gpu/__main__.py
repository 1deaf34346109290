"""`python -m bench.gpu [CASE ...]`: measures on a GPU, prints tables, leaves JSON and plots in bench/results.

`python -m bench.gpu --all --output DIR` is the run to begin with on a machine with a GPU: within nine minutes the tests
of the CUDA back end, the kernels' registers, all benchmarks at the sizes that the targets name, and NVIDIA's sanitizer.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

from bench import machine
from bench.__main__ import CAN_PLOT, CASES, load_case
from bench.case import Case
from bench.gpu.cases import PARTS, Found, Run, Screen
from bench.gpu.copies import GpuCopyMeter
from bench.gpu.data import MAKERS
from bench.gpu.everything import run_everything
from bench.gpu.kernels import Budget
from bench.gpu.report import target_table
from optpy.kernels.runtime.cuda import available
from optpy.kernels.runtime.cuda.device import Device

PICTURE_SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
MESH_SIZES = (64, 128, 256, 512, 1023, 1293)
"""Up to a million vertices, and to ten million (directed) edges; of thousands they are multiples of three."""
HOST_SIZES = (64, 128, 256, 512)
"""Of cases whose data is made on the CPU."""
QUICK = Budget(seconds=0.005, runs=2, repeat=50)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all if none is named")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="pixels along a side; a mesh: N * N vertices")
    parser.add_argument(
        "--solve-sizes", nargs="+", type=int, default=[256, 512, 1024], metavar="N", help="of the solves"
    )
    parser.add_argument("--cpu-at-most", type=int, default=1024, metavar="N", help="largest size the CPU solves")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--threads", type=int, default=2, help="of the CPU beside the GPU; 0 leaves it out")
    parser.add_argument("--seconds", type=float, help="nothing new begins after so many; with --all 540")
    parser.add_argument("--quick", action="store_true", help="short measurements: to see that everything runs")
    parser.add_argument(
        "--no-pool", action="store_true", help="each array in memory of its own: a sanitizer sees where it ends"
    )
    parser.add_argument("--all", action="store_true", help="the run to begin with; takes no CASE")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    if settings.all and settings.cases:
        parser.error("--all chooses the cases itself")
    settings.cases = settings.cases or list(CASES)
    settings.seconds = settings.seconds or (540.0 if settings.all else math.inf)
    return settings


def sizes_of(case: Case, asked: list[int] | None) -> list[int]:
    """The sizes of the sweep, or those asked for that the case's data can have."""
    if case.name in MAKERS:
        return asked or list(MESH_SIZES if case.unit == "edge" else PICTURE_SIZES)
    return list(dict.fromkeys(min(size, case.largest or size) for size in asked or HOST_SIZES))


def new_run(settings: argparse.Namespace, device: Device, screen: Screen) -> Run:
    """The settings, and the copies to compare with."""
    meter = GpuCopyMeter(device, 2**22, 1e-3) if settings.quick else GpuCopyMeter(device)
    budget = QUICK if settings.quick else Budget()
    deadline = time.perf_counter() + settings.seconds
    return Run(device, meter, screen, settings.dtype, settings.threads, budget, deadline)


def describe(device: Device) -> dict[str, Any]:
    """Where a run took place."""
    facts = available.describe_cuda()
    facts.pop("error", None)
    return {**machine.describe(), "device": f"{device.name} ({device.architecture})", **facts}


def measure(case: Case, settings: argparse.Namespace, run: Run) -> Found:
    """One case, with its plots."""
    found = run.measure(case, sizes_of(case, settings.sizes), set(settings.parts) - {"solves"})
    if "solves" in settings.parts:
        sizes = [min(size, case.largest or size) for size in settings.solve_sizes]
        found.add(run.solve(case, dict.fromkeys(sizes), settings.cpu_at_most))
    plot(case.name, found, settings.output)
    return found


def plot(name: str, found: Found, output: Path) -> None:
    """What can be drawn of a case."""
    if not CAN_PLOT:
        return
    from bench.gpu.plot import plot_besides, plot_kernels

    if found.kernels:
        plot_kernels(found.kernels, output / f"{name}_gpu.png")
    if any(row.seconds is not None for row in found.besides):
        plot_besides(found.besides, output / f"{name}_gpu_beside.png")


def main(arguments: list[str] | None = None) -> None:
    """Runs the cases one after the other."""
    settings = parse(arguments)
    settings.output.mkdir(parents=True, exist_ok=True)
    device = available.find_device()
    if settings.no_pool:
        device.xp.cuda.set_allocator(None)
    if settings.all:
        run_everything(settings, device, new_run, describe(device), plot)
        return
    screen, together = Screen(), Found()
    run = new_run(settings, device, screen)
    for name in settings.cases:
        found = measure(load_case(name), settings, run)
        together.add(found)
        path = settings.output / f"{name}_gpu.json"
        path.write_text(json.dumps({"case": name, "machine": describe(device), **found.as_record()}, indent=1))
        screen.line(f"{name}: {path}")
    screen.table(target_table([t for t in together.targets if t.found is not None]))


if __name__ == "__main__":
    main()
