"""The command line of programs that measure what decisions stand on, and the cases that it names."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

from bench.__main__ import CASES, load_case
from bench.case import Case
from optpy.api.problem import CompiledProblem
from optpy.ir import Group


def parser(program: str, doc: str | None) -> argparse.ArgumentParser:
    """The options that these programs share.

    Args:
        program: its name, "bench.schedules".
        doc: of its module, whose first paragraph describes it.
    """
    made = argparse.ArgumentParser(prog=f"python -m {program}", description=(doc or "").split("\n\n")[0])
    add_names(made, "cases", CASES)
    made.add_argument("--size", type=int, default=256, help="pixels along a side; a mesh: N * N vertices")
    made.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    return made


def add_names(made: argparse.ArgumentParser, kind: str, names: Sequence[str]) -> None:
    """An argument for any number of names. Choices of argparse would refuse that none is given.

    Args:
        made: the parser that gets it.
        kind: of what the names are, in the plural.
        names: that there are.
    """

    def known(name: str) -> str:
        if name not in names:
            raise argparse.ArgumentTypeError(f"there is no {name!r} among the {kind}: {', '.join(names)}")
        return name

    one = kind.removesuffix("s").upper()
    made.add_argument(kind, nargs="*", type=known, metavar=one, help=f"{', '.join(names)}; all if none is named")


def chosen(settings: argparse.Namespace) -> Iterator[tuple[Case, int]]:
    """The cases that are asked for, or all, each with its size: the one asked for, or its largest."""
    for name in settings.cases or CASES:
        case = load_case(name)
        yield case, min(settings.size, case.largest or settings.size)


def processor_seconds(problem: CompiledProblem, group: Group, enough: float) -> float:
    """Seconds of the processor for one run of a group of routines: on one thread a busy machine does not change them.

    Args:
        problem: linearised.
        group: of its routines.
        enough: seconds of a measurement: the group is repeated until it takes so long.
    """
    repeat = 1
    while True:
        started = time.process_time()
        problem.benchmark(group, repeat)
        seconds = time.process_time() - started
        if seconds >= enough:
            return seconds / repeat
        repeat *= 2
