"""The tables of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from rich.table import Table

from bench.search.verdict import VERDICTS, Run


def counts(runs: Sequence[Run], names: Sequence[str], title: str) -> Table:
    """How often each verdict was given, one line for each value of some attributes of the runs."""
    table = Table(title=title)
    for name in names:
        table.add_column(name)
    for name in ("runs", *VERDICTS):
        table.add_column(name, justify="right")
    for key, group in _grouped(runs, lambda run: tuple(getattr(run, name) for name in names)):
        verdicts = Counter(run.verdict for run in group)
        cells = (str(verdicts[v]) if verdicts[v] else "" for v in VERDICTS)
        table.add_row(*key, str(len(group)), *cells)
    verdicts = Counter(run.verdict for run in runs)
    table.add_section()
    table.add_row("all", *[""] * (len(names) - 1), str(len(runs)), *(str(verdicts[v]) for v in VERDICTS))
    return table


def classes(runs: Sequence[Run]) -> Table:
    """The wrong ones, those alike in one line; the least and the greatest distance, in units of what is tolerated."""
    table = Table(title="successes that are wrong", caption="excess: above the minimum, in units of what is tolerated")
    for name in ("family", "dtype", "method", "status", "preconditioners"):
        table.add_column(name)
    for name in ("runs", "excess", "to", "a seed"):
        table.add_column(name, justify="right")
    wrong = [run for run in runs if run.verdict == "WRONG"]
    for key, group in _grouped(wrong, lambda run: (run.family, run.dtype, run.method, run.outcome.status)):
        kinds = Counter(run.preconditioner for run in group)
        excess = sorted((run.level.excess(run.outcome.value), run.seed) for run in group)
        worst = f"{excess[-1][0]:.1e}", str(excess[-1][1])
        names = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
        table.add_row(*key, names, str(len(group)), f"{excess[0][0]:.1e}", *worst)
    return table


def lines(runs: Sequence[Run]) -> Iterator[str]:
    """Each wrong run and each error, with the command that repeats it."""
    for run in runs:
        if run.verdict == "error":
            yield f"{run.command}    # {run.outcome.status}"
        elif run.verdict == "WRONG":
            ends = f"{run.outcome.value:.6g}, the minimum is {run.level.minimum:.6g}, rounding {run.level.floor:.1g}"
            yield f"{run.command}    # {run.outcome.status} at {ends}"


def _grouped(runs: Sequence[Run], key: Callable[[Run], Any]) -> Iterator[tuple[Any, list[Run]]]:
    order = {k: n for n, k in enumerate(dict.fromkeys(map(key, runs)))}
    ordered = sorted(runs, key=lambda run: order[key(run)])
    yield from ((k, list(group)) for k, group in groupby(ordered, key))
