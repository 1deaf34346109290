"""The tables that a run of the benchmarks prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.table import Table

from bench.compile_times import FIRST_SOLVE_SIZE, Startup
from bench.race import Duel, Race
from bench.throughput import Throughput


def throughput_table(rows: Sequence[Throughput]) -> Table:
    """One line for each routine and size; below it, what was counted."""
    counts = "\n".join(dict.fromkeys(f"{row.routine}: {row.count}" for row in rows))
    table = Table(title=f"{rows[0].case}, {rows[0].dtype}, {rows[0].threads} threads", caption=counts)
    for name in ("routine", "size", "ms", f"M{rows[0].unit}/s", "GB/s", "copy GB/s", "of copy", "of copy of same size"):
        table.add_column(name, justify="left" if name == "routine" else "right")
    for row in rows:
        table.add_row(
            row.routine,
            f"{row.size}",
            f"{1e3 * row.seconds:.3f}",
            f"{row.millions_per_second:.0f}",
            f"{1e-9 * row.bandwidth:.1f}",
            f"{1e-9 * row.memory.bandwidth:.1f}",
            f"{row.fraction:.0%}",
            f"{row.fraction_same_size:.0%}",
        )
    return table


def startup_table(rows: Iterable[Startup]) -> Table:
    """One line for each fresh process."""
    table = Table(title="a fresh process: seconds")
    for name in ("energy", "cache"):
        table.add_column(name)
    for name in ("import optpy", "build the energy", "compile", f"first solve, {FIRST_SOLVE_SIZE}²"):
        table.add_column(name, justify="right")
    for row in rows:
        seconds = (row.import_optpy, row.build_energy, row.compile, row.first_solve)
        table.add_row(row.case, row.stage, *(f"{s:.3f}" for s in seconds))
    return table


def race_table(race: Race) -> Table:
    """One line for each peer."""
    ours = race.curves[0]
    counts = (
        f"{ours.facts['nonlinear_iterations']:.0f} nonlinear, {ours.facts['linear_iterations']:.0f} linear iterations"
    )
    endings = "\n".join(f"{curve.name}: {curve.ending}" for curve in race.curves)
    memory = [f"{c.name}: {c.facts['grown_mib']:.1f} MiB" for c in race.curves if "grown_mib" in c.facts]
    lines = [
        f"{ours.name}: {counts}, cost {ours.final_cost:.6g}",
        endings,
        f"memory: {', '.join(memory)}",
        *race.absent,
    ]
    caption = "\n".join(lines)
    table = Table(title=f"{race.case}, {race.problem}: seconds to the same cost", caption=caption)
    table.add_column("peer")
    table.add_column("to")
    for name in ("cost", "peer", "of it F and J", ours.name, "times faster", "without F and J"):
        table.add_column(name, justify="right")
    for duel in race.duels:
        table.add_row(duel.peer, *_duel_cells(duel))
    return table


def _duel_cells(duel: Duel) -> Iterable[str]:
    yield duel.goal
    yield f"{duel.target:.6g}"
    yield f"{duel.peer_seconds:.3f}"
    yield f"{duel.assembly_seconds:.3f}" if duel.assembly_seconds else ""
    yield "not reached" if duel.optpy_seconds is None else f"{duel.optpy_seconds:.4f}"
    yield "" if duel.speedup is None else f"{duel.speedup:.1f}"
    yield "" if duel.speedup_without_assembly is None else f"{duel.speedup_without_assembly:.1f}"


def sooner(races: Sequence[Race]) -> Iterator[str]:
    """Of races in several precisions, a line for each cost: how much sooner than the fastest peer each gets there."""
    for target in dict.fromkeys(duel.target for race in races for duel in race.duels if len(races) > 1):
        duels = [[d for d in race.duels if d.target == target] for race in races]
        first = min(duels[0], key=lambda d: d.peer_seconds)
        line, before, more = f"to {target:g}: {first.peer} {first.peer_seconds:.3f} s", first.peer_seconds, ""
        for race, of_one in zip(races, duels, strict=True):
            seconds = of_one[0].optpy_seconds
            if seconds is None:
                line += f"; {race.dtype} does not get there"
                continue
            line += f"; {race.dtype} {seconds:.3f} s, {more}{before / seconds:.1f} times sooner"
            before, more = seconds, "another "
        yield line


def show(table: Table) -> None:
    """Prints a table; as wide as it needs where nobody looks, such as in a log."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    console.print(table)
