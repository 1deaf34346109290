"""What the kernels for GPUs shall reach, and whether a run's figures do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, final

from bench.gpu.beside import Beside
from bench.gpu.kernels import KernelTime
from bench.gpu.overhead import Overhead

PICTURES = ("image_warping", "poisson")
PICTURE_SIZE, MESH_SIZE, SMALL_SIZE = 4096, 1023, 512
"""Pixels along a side; 1023 x 1023 vertices are a million and something."""

APPLY_FRACTION, PCG_FRACTION = 0.75, 0.70
PICTURE_TIMES, MESH_TIMES = 5.0, 3.0
STREAM_TIMES = 1.5
OVERHEAD_SECONDS = 6e-6
CPU_TIMES = 100.0


@final
@dataclass(frozen=True, slots=True)
class Target:
    """One of them, and what a run has found."""

    what: str
    wanted: float
    found: float | None
    """None: not measured in this run."""
    unit: str
    at: Literal["least", "most"]

    @property
    def reached(self) -> bool | None:
        """Whether it is; None if nobody knows."""
        if self.found is None:
            return None
        return self.found >= self.wanted if self.at == "least" else self.found <= self.wanted


def targets(
    rows: Sequence[KernelTime], besides: Sequence[Beside], overheads: Sequence[Overhead], cpu: dict[str, float]
) -> list[Target]:
    """All of them, in float32.

    Args:
        cpu: of "image_warping 4096", how many times faster the product is than on the CPU.
    """
    return [
        *_fractions(rows),
        *_against_cusparse(besides),
        _stream(rows),
        _overhead(overheads),
        *(_cpu(name, cpu) for name in PICTURES),
    ]


def _fractions(rows: Sequence[KernelTime]) -> Iterator[Target]:
    for case in PICTURES:
        for routine, wanted in (("applyJTJ", APPLY_FRACTION), ("pcg", PCG_FRACTION)):
            row = _row(rows, case, routine, PICTURE_SIZE)
            what = f"{case} {PICTURE_SIZE}², {routine}: of copy bandwidth"
            yield Target(what, wanted, None if row is None else row.fraction, "", "least")


def _against_cusparse(besides: Iterable[Beside]) -> Iterator[Target]:
    """The faster of its ways counts."""
    found = [b for b in besides if b.peer.startswith("cuSPARSE") and b.times_faster is not None]
    wanted = [(case, PICTURE_SIZE, PICTURE_TIMES) for case in PICTURES] + [("mesh_deformation", MESH_SIZE, MESH_TIMES)]
    for case, size, times in wanted:
        ratios = [b.times_faster or 0.0 for b in found if (b.case, b.size, b.dtype) == (case, size, "float32")]
        what = f"{case} {size}², J^T J p: times faster than cuSPARSE"
        yield Target(what, times, min(ratios, default=None), "", "least")


def _stream(rows: Sequence[KernelTime]) -> Target:
    row = _row(rows, "mesh_deformation", "applyJTJ", MESH_SIZE)
    found = None if row is None else 1 / row.fraction
    what = f"mesh_deformation {MESH_SIZE}², applyJTJ: times what streaming indices and vertices takes"
    return Target(what, STREAM_TIMES, found, "", "most")


def _overhead(overheads: Iterable[Overhead]) -> Target:
    small = [o for o in overheads if (o.case, o.size, o.dtype) == ("image_warping", SMALL_SIZE, "float32")]
    found = 1e6 * small[0].overhead if small else None
    what = f"image_warping {SMALL_SIZE}²: an iteration beside its work"
    return Target(what, 1e6 * OVERHEAD_SECONDS, found, "µs", "most")


def _cpu(case: str, cpu: dict[str, float]) -> Target:
    what = f"{case} {PICTURE_SIZE}², applyJTJ: times faster than the CPU"
    return Target(what, CPU_TIMES, cpu.get(f"{case} {PICTURE_SIZE}"), "", "least")


def _row(rows: Iterable[KernelTime], case: str, routine: str, size: int) -> KernelTime | None:
    wanted = (case, routine, size, "float32")
    return next((r for r in rows if (r.case, r.routine, r.size, r.dtype) == wanted), None)


def as_record(target: Target) -> dict[str, Any]:
    """For JSON."""
    return {**asdict(target), "reached": target.reached}
