"""The C text of the preconditioners that have code of their own, by what an energy's unknowns are."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import Coupling, NormalMatrix, Uncoupled
from .assembly import assembly_source
from .compiler import native_header
from .dialect import Dialect
from .multigrid import multigrid_source
from .slots import Slots


def preconditioner_source(
    coupling: Coupling | Uncoupled, normal: NormalMatrix | Uncoupled, slots: Slots, dialect: Dialect
) -> str:
    """All of it; goes after prelude.h, team.h and kernel.h."""
    return "\n\n".join([preconditioner_prelude(dialect), *_sources(coupling, normal, slots, dialect)])


def preconditioner_prelude(dialect: Dialect) -> str:
    """What the code of each one starts from."""
    return f"#define OPTPY_REAL {dialect.real}\n\n" + native_header("signs.h")


def _sources(
    coupling: Coupling | Uncoupled, normal: NormalMatrix | Uncoupled, slots: Slots, dialect: Dialect
) -> Iterator[str]:
    if isinstance(coupling, Coupling):
        yield multigrid_source(coupling, slots)
    if isinstance(normal, NormalMatrix):
        yield assembly_source(normal, slots)
