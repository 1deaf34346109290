"""All preconditioners, in the order in which "auto" tries those of which nothing is known.

Whatever others know of a preconditioner they ask for here: no other file has its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from optpy.errors import OptionError
from optpy.ir import Coupling, Uncoupled
from optpy.linear.aggregation.record import AGGREGATION
from optpy.linear.cholesky.record import CHOLESKY
from optpy.linear.jacobi.record import BLOCK_JACOBI, JACOBI
from optpy.linear.multigrid.record import MULTIGRID
from optpy.linear.record import Implementation, Record
from optpy.linear.system import System
from optpy.solver.options import Preconditioner, one_of

REGISTRY: tuple[Record, ...] = (CHOLESKY, JACOBI, BLOCK_JACOBI, MULTIGRID, AGGREGATION)

PLAIN, BLOCKS = JACOBI, BLOCK_JACOBI
"""Those that need not be made. The plain one also runs conjugate gradients without a preconditioner, where its diagonal
is 1; with the other one "auto" begins where nothing may take its place."""


def options() -> tuple[str, ...]:
    """The names by which users ask for preconditioners."""
    return tuple(dict.fromkeys(r.option for r in REGISTRY))


def check_name(preconditioner: object) -> None:
    """Nothing, if there is a preconditioner of that name; "auto" and None are none, and allowed.

    Raises:
        OptionError: there is not, with the one that was probably meant.
    """
    other_names = {name: r.option for r in REGISTRY for name in r.other_names}
    one_of("preconditioner", preconditioner, (None, "auto", *options()), other_names)


# -- on a GPU ----------------------------------------------------------------------------------------------------------


def is_for_the_cpu_only(preconditioner: object) -> bool:
    """Whether what is asked for by name does not run on GPUs."""
    found = _asked_for(preconditioner)
    return bool(found) and all(isinstance(r.gpu, str) for r in found)


def is_sure_on_gpu(preconditioner: object, coupling: Callable[[], Coupling | Uncoupled]) -> bool:
    """Whether what is asked for by name, if anything, runs on a GPU whatever the data.

    Args:
        preconditioner: the option.
        coupling: finds out how an energy couples its unknowns, which takes time.
    """
    on_gpu = [r for r in _asked_for(preconditioner) if isinstance(r.gpu, Implementation)]
    sure = (r.is_sure_on_gpu is None or r.is_sure_on_gpu(coupling()) for r in on_gpu)
    return any(sure) or not _asked_for(preconditioner)


def refuse_on_gpu(preconditioner: object) -> None:
    """Nothing, if what is asked for by name runs on GPUs.

    Raises:
        OptionError: it runs on the CPU only.
    """
    if is_for_the_cpu_only(preconditioner):
        *others, last = ["'auto'", *(_on_gpu(option) for option in options() if not is_for_the_cpu_only(option))]
        raise OptionError(
            f"preconditioner={preconditioner!r} runs on the CPU only: use {', '.join(others)} or {last} with "
            "device='cuda', or device='cpu'"
        )


def _on_gpu(option: str) -> str:
    """An option, with what it is not there."""
    less = [r.gpu for r in _asked_for(option) if isinstance(r.gpu, str)]
    return f"{option!r} ({'; '.join(less)})" if less else repr(option)


# -- for a system ------------------------------------------------------------------------------------------------------


def heavier(system: System) -> list[Record]:
    """The preconditioners that may take the place of what "auto" begins with."""
    return [r for r in REGISTRY if r.starter and _applies(r, system)]


def in_order(records: Collection[Record]) -> list[Record]:
    """Some of the preconditioners in the order of all."""
    return [r for r in REGISTRY if r in records]


def named(option: str, system: System) -> Record:
    """The preconditioner that an option stands for; the first one that has it, if none applies."""
    found = _asked_for(option)
    return next((r for r in found if _applies(r, system)), found[0])


def check(preconditioner: Preconditioner, system: System) -> None:
    """Nothing, if what is asked for by name applies to a system.

    Raises:
        OptionError: it does not, or there is none.
    """
    check_name(preconditioner)
    found = _asked_for(preconditioner)
    if not found or any(_applies(r, system) for r in found):
        return
    whys = {r.applicability(system): None for r in found if not isinstance(r.implementation(system), str)}
    why = "; and ".join(w for w in whys if w)
    refused = f"preconditioner={preconditioner!r} does not apply"
    if system.loop.device == "cpu":
        raise OptionError(f"{refused}: {why}; use 'auto'")
    less = "".join(f", where {r.gpu}" for r in found if isinstance(r.gpu, str))
    raise OptionError(f"{refused} on a GPU{less}: {why}; use 'auto', or device='cpu'")


def _asked_for(option: object) -> list[Record]:
    return [r for r in REGISTRY if isinstance(option, str) and r.option == option]


def _applies(record: Record, system: System) -> bool:
    """Whether a preconditioner applies to a system, on its device."""
    return not isinstance(record.implementation(system), str) and record.applicability(system) is None
