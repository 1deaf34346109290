"""`python -m bench [CASE ...]`: measures, prints tables, leaves JSON and plots in bench/results."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from bench import compile_times, machine, race, report, throughput
from bench.bandwidth import CopyMeter
from bench.case import Case
from bench.race import Race

# matplotlib is in the extra "bench" only.
CAN_PLOT = importlib.util.find_spec("matplotlib") is not None

CASES = (
    "image_warping",
    "sparse_warping",
    "poisson",
    "laplacian",
    "mesh_deformation",
    "embedded_deformation",
    "cotangent_smoothing",
    "nonrigid_alignment",
    "shape_from_shading",
    "shape_from_shading_inline",
    "optical_flow",
    "intrinsic_images",
    "volumetric_deformation",
    "shape_and_shading",
    "bundle_fusion",
)
PARTS = ("throughput", "compile", "race")


def load_case(name: str) -> Case:
    """The case in the module of that name."""
    return cast(Case, importlib.import_module(f"bench.{name}").CASE)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line; --quick changes the defaults only."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"{', '.join(CASES)}; all if none is named")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure")
    parser.add_argument("--sizes", nargs="+", type=int, metavar="N", help="pixels along a side; a mesh: N * N vertices")
    parser.add_argument("--race-sizes", nargs="+", type=int, metavar="N", help="and of the whole solves")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="for each peer's solve")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="small sizes, short budgets, no famous data")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results"))
    settings = parser.parse_args(arguments)
    unknown = [name for name in settings.cases if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    settings.cases = settings.cases or list(CASES)
    settings.sizes = settings.sizes or ([256, 1024] if settings.quick else [256, 512, 1024, 2048, 4096])
    settings.race_sizes = settings.race_sizes or ([32, 64] if settings.quick else [64, 128, 256])
    settings.budget = settings.budget or (10.0 if settings.quick else 120.0)
    return settings


def run(case: Case, settings: argparse.Namespace, meter: CopyMeter | None) -> dict[str, Any]:
    """Measures one case; prints and plots on the way; returns the record for JSON."""
    record: dict[str, Any] = {"case": case.name, "machine": machine.describe()}
    if "compile" in settings.parts:
        startups = compile_times.measure(case, settings.dtype)
        report.show(report.startup_table(startups))
        record["compile"] = [asdict(row) for row in startups]
    if meter is not None:
        record["throughput"] = _throughput(case, settings, meter)
    if "race" in settings.parts:
        record["race"] = [_show_race(done, settings.output) for done in _races(case, settings)]
    return record


def _throughput(case: Case, settings: argparse.Namespace, meter: CopyMeter) -> list[dict[str, Any]]:
    rows = [
        row
        for size in dict.fromkeys(min(size, case.largest or size) for size in settings.sizes)
        for row in throughput.measure(case, size, settings.dtype, settings.threads, meter)
    ]
    report.show(report.throughput_table(rows))
    if CAN_PLOT:
        from bench.plot import plot_throughput

        plot_throughput(rows, settings.output / f"{case.name}_throughput.png")
    return [throughput.as_record(row) for row in rows]


def _races(case: Case, settings: argparse.Namespace) -> Iterator[Race]:
    for size in settings.race_sizes:
        yield race.race(case, size, settings.dtype, settings.threads, settings.budget)
    if case.famous is not None and not settings.quick:
        famous = race.race_famous(case, case.famous, settings.dtype, settings.threads, settings.budget)
        if not famous:
            print(f"{case.famous.name}: its files are not there (see OPTPY_DATA in docs/gallery/index.md)")
        yield from famous
        for line in report.sooner(famous):
            print(line)


def _show_race(done: Race, output: Path) -> dict[str, Any]:
    report.show(report.race_table(done))
    if CAN_PLOT:
        from bench.plot import plot_race

        plot_race(done, output / f"{done.case}_race_{done.problem.replace(' ', '')}.png")
    return race.as_record(done)


def main(arguments: list[str] | None = None) -> None:
    """Runs the cases one after the other."""
    settings = parse(arguments)
    settings.output.mkdir(parents=True, exist_ok=True)
    meter = CopyMeter(settings.threads) if "throughput" in settings.parts else None
    if meter is not None and meter.note:
        print(meter.note)
    if not CAN_PLOT:
        print("no plots: matplotlib is not installed (pip install 'optpy[bench]')")
    for name in settings.cases:
        record = run(load_case(name), settings, meter)
        path = settings.output / f"{name}.json"
        path.write_text(json.dumps(record, indent=1))
        print(f"{name}: {path}")


if __name__ == "__main__":
    main()
