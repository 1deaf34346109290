"""The run to begin with on a machine with a GPU: tests, benchmarks, registers and sanitizer, in a given time.

What matters most comes first. Each step leaves its part in everything.json, so that a run that is cut off has left what
it had; the tables are in everything.txt, the terminal has a line for each step and the summary.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, final

from bench import registers
from bench.__main__ import load_case
from bench.gpu.cases import PARTS, Found, Run, Screen
from bench.gpu.report import target_table
from bench.gpu.targets import MESH_SIZE, PICTURE_SIZE, SMALL_SIZE, as_record
from optpy.kernels.runtime.cuda.device import Device

_ROOT = Path(__file__).parents[2]
_TAIL = 1500  # characters of what a program has said
GRACE = 8.0  # seconds in which it may say more when it is stopped
# What a shell starts in the background ignores Ctrl-C, and so does what it starts in turn.
_HEARING = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"

MAIN = ("image_warping", "poisson", "mesh_deformation")
SWEEP = {
    "image_warping": (64, 256, 1024, 2048, 8192, 16384),
    "poisson": (64, 1024, 16384),
    "laplacian": (512, 4096, 16384),
    "mesh_deformation": (64, 256, 1293),
    "embedded_deformation": (512,),
    "cotangent_smoothing": (256,),
    "nonrigid_alignment": (256,),
    "sparse_warping": (512,),
    "shape_from_shading": (512,),
    "shape_from_shading_inline": (512,),
    "optical_flow": (512,),
    "intrinsic_images": (512,),
    "volumetric_deformation": (512,),
    "shape_and_shading": (512,),
    "bundle_fusion": (256,),
}
QUICK_SIZE = 24
PLAIN = ("applyJTJ", "pcg")
"""What the line of a step has figures of."""
SANITIZED = ("laplacian", "image_warping", "mesh_deformation")
TOOLS = ("memcheck", "racecheck")


@final
@dataclass(slots=True)
class Everything:
    """The steps so far.

    Attributes:
        lines: of the summary.
        seconds: of each step.
    """

    settings: argparse.Namespace
    run: Run
    facts: dict[str, Any]
    plot: Callable[[str, Found, Path], None]
    begun: float
    found: Found = field(default_factory=Found)
    lines: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    registers: list[registers.KernelRow] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Seconds until nothing new may begin."""
        return self.run.deadline - time.perf_counter()

    def step(self, name: str, work: Callable[[], str]) -> None:
        """One step; whatever goes wrong in it, the others go on."""
        begin = time.perf_counter()
        try:
            line = work() if self.left > 0 else "NOT RUN: no time is left"
        except Exception as error:  # reported, with its text
            line = f"FAILED: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
        self.seconds[name] = time.perf_counter() - begin
        self.lines.append(f"{name} ({self.seconds[name]:.0f} s): {line}")
        self.run.screen.line(f"[{time.perf_counter() - self.begun:.0f} s] {self.lines[-1]}")
        self.write()

    def write(self) -> None:
        """All that is known."""
        record = {
            "machine": self.facts,
            "targets": [as_record(target) for target in self.found.targets],
            "steps": self.lines,
            "seconds": self.seconds,
            **self.found.as_record(),
            "registers": registers.as_records(self.registers),
        }
        (self.settings.output / "everything.json").write_text(json.dumps(record, indent=1))

    def bench(self, name: str, sizes: Sequence[int], parts: Sequence[str]) -> str:
        """A case at some sizes."""
        found = self.run.measure(load_case(name), sizes, parts)
        self.found.add(found)
        whole = Found(
            kernels=[row for row in self.found.kernels if row.case == name],
            besides=[row for row in self.found.besides if row.case == name],
        )
        self.plot(name, whole, self.settings.output)
        best = [f"{row.size}² {row.routine} {row.fraction:.0%}" for row in found.kernels if row.routine in PLAIN]
        return f"of copy: {', '.join(best)}" if best else "nothing measured"

    def solve(self, name: str, sizes: Sequence[int], cpu_at_most: int) -> str:
        """Whole solves of a case."""
        found = self.run.solve(load_case(name), sizes, cpu_at_most)
        self.found.add(found)
        return "; ".join(f"{s.size}² {s.device} {s.seconds:.4f} s, cost {s.cost:.6g}" for s in found.solves)

    def tests(self, seconds: float) -> str:
        """The tests of the CUDA back end, on this device; what NumPy will drop some day is no failure of its."""
        options = ["-q", "--maxfail=10", "-p", "no:cacheprovider", "-W", "default::DeprecationWarning"]
        command = [sys.executable, "-m", "pytest", *options, "-m", "gpu or nvrtc"]
        return self.output_of(command, seconds)

    def sanitizer(self, tool: str, seconds: float) -> str:
        """Short measurements of small problems under NVIDIA's compute-sanitizer."""
        found = shutil.which("compute-sanitizer")
        if found is None:
            return "compute-sanitizer is not installed"
        with tempfile.TemporaryDirectory() as folder:
            own = [sys.executable, "-m", "bench.gpu", *SANITIZED, "--quick", "--sizes", "33", "--parts", "kernels"]
            own += ["--threads", "0", "--no-pool", "--output", folder]
            return self.output_of([found, "--tool", tool, "--error-exitcode", "9", *own], seconds)

    def list_registers(self) -> str:
        """Of the main cases, for this device."""
        for name in MAIN:
            rows = list(registers.measure(load_case(name), "float32", "scatter", self.run.device.architecture))
            self.run.screen.table(registers.table(rows))
            self.registers += rows
        spilled = registers.spilled(self.registers)
        return f"local memory: {'; '.join(spilled)}" if spilled else "no kernel has local memory"

    def output_of(self, command: Sequence[str], seconds: float) -> str:
        """Runs a program from the checkout's root, with all that it starts; its last words go to the file."""
        limit = max(1.0, min(seconds, self.left))
        environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
        with subprocess.Popen(
            [sys.executable, "-c", _HEARING, *command],
            cwd=_ROOT, env=environment, text=True, errors="replace", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                said, _ = process.communicate(timeout=limit)
                ended = f"status {process.returncode}"
            except subprocess.TimeoutExpired:
                said = _stopped(process)
                ended = f"stopped after {limit:.0f} s"
        (self.settings.output / f"{'_'.join(Path(command[0]).name.split('.'))}_{len(self.lines)}.txt").write_text(said)
        last = " ".join(said[-_TAIL:].split("\n")[-4:]).strip()
        return f"{ended}: {last[-400:]}"


def _stopped(process: subprocess.Popen[str]) -> str:
    """What a program has said in all, stopped as by Ctrl-C: tests then say what has failed so far."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=GRACE)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def run_everything(
    settings: argparse.Namespace,
    device: Device,
    new_run: Callable[[argparse.Namespace, Device, Screen], Run],
    facts: dict[str, Any],
    plot: Callable[[str, Found, Path], None],
) -> None:
    """All steps, what matters most first, and the summary."""
    begun = time.perf_counter()
    with (settings.output / "everything.txt").open("w", encoding="utf-8") as file:
        screen = Screen(file)
        everything = Everything(settings, new_run(settings, device, screen), facts, plot, begun)
        for name, work in steps(everything):
            everything.step(name, work)
        screen.table(target_table(everything.found.targets))
    _summarise(everything)


def steps(e: Everything) -> list[tuple[str, Callable[[], str]]]:
    """What is done, in order."""
    small, large, mesh = (QUICK_SIZE,) * 3 if e.settings.quick else (SMALL_SIZE, PICTURE_SIZE, MESH_SIZE)
    pictures = list(dict.fromkeys((small, large)))
    without_solves = [part for part in PARTS if part != "solves"]
    listed: list[tuple[str, Callable[[], str]]] = [
        ("image_warping", lambda: e.bench("image_warping", pictures, without_solves)),
        ("mesh_deformation", lambda: e.bench("mesh_deformation", [mesh], without_solves)),
        ("poisson", lambda: e.bench("poisson", pictures, without_solves)),
        ("tests", lambda: e.tests(150.0)),
        ("solves of image_warping", lambda: e.solve("image_warping", pictures, small)),
        ("solves of mesh_deformation", lambda: e.solve("mesh_deformation", [mesh // 4], mesh)),
        ("memcheck", lambda: e.sanitizer("memcheck", 60.0)),
    ]
    for name, sizes in SWEEP.items():
        chosen = (QUICK_SIZE,) if e.settings.quick else sizes
        listed.append((f"sweep of {name}", partial(e.bench, name, chosen, ["kernels"])))
    listed += [("registers", e.list_registers), ("racecheck", lambda: e.sanitizer("racecheck", 60.0))]
    return listed


def _summarise(e: Everything) -> None:
    print(f"\n{e.facts['device']}, {time.perf_counter() - e.begun:.0f} s")
    print("\n".join(e.lines))
    for skipped in e.found.skipped:
        print(f"skipped: {skipped}")
    for beside in e.found.besides:
        if beside.note:
            print(f"{beside.case} {beside.size}², {beside.peer}: {beside.note}")
        elif beside.times_faster is not None:
            print(f"{beside.case} {beside.size}², {beside.peer}: optpy is {beside.times_faster:.2f} times faster")
    for o in e.found.overheads:
        print(f"{o.case} {o.size}²: iteration {1e6 * o.iteration:.2f} µs, beside its work {1e6 * o.overhead:.2f} µs")
    for target in e.found.targets:
        mark = {True: "reached", False: "MISSED", None: "not measured"}[target.reached]
        shown = "" if target.found is None else f"{target.found:.2f} {target.unit}".strip()
        print(f"{mark}: {target.what}: {shown} (wanted {target.wanted:g})")
    print(e.settings.output / "everything.json")
