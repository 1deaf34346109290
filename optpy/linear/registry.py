"""All preconditioners, in the order in which "auto" tries those of which nothing is known."""

from __future__ import annotations

from optpy.errors import OptionError
from optpy.kernels.runtime.cpu import CpuLibrary
from optpy.linear.aggregation.record import AGGREGATION
from optpy.linear.cholesky.record import CHOLESKY
from optpy.linear.jacobi.record import BLOCK_JACOBI, JACOBI
from optpy.linear.multigrid.record import MULTIGRID
from optpy.linear.record import Implementation, Record
from optpy.linear.system import System
from optpy.solver.options import Preconditioner, PreconditionerName

REGISTRY: tuple[Record, ...] = (CHOLESKY, JACOBI, BLOCK_JACOBI, MULTIGRID, AGGREGATION)

CPU_ONLY = {r.option for r in REGISTRY} - {r.option for r in REGISTRY if isinstance(r.gpu, Implementation)}
"""The options of preconditioners that do not run on a GPU."""


def refuse_on_gpu(preconditioner: object) -> None:
    """Nothing, if what is asked for by name runs on GPUs.

    Raises:
        OptionError: it runs on the CPU only.
    """
    if isinstance(preconditioner, str) and preconditioner in CPU_ONLY:
        raise OptionError(
            f"preconditioner={preconditioner!r} runs on the CPU only: use 'auto', 'jacobi', 'block_jacobi' or, on one "
            "grid, 'multigrid' with device='cuda', or device='cpu'"
        )


def compile_with_energy(library: CpuLibrary) -> None:
    """Compile what solves on the CPU may need of native code, so that none waits for a compiler.

    Raises:
        CompileError
    """
    for record in REGISTRY:
        if record.with_energy is not None:
            record.with_energy(library)


def applies(record: Record, system: System) -> bool:
    """Whether a preconditioner applies to a system, on its device."""
    return not isinstance(record.implementation(system), str) and record.applicability(system) is None


def named(option: PreconditionerName, system: System) -> Record:
    """The preconditioner that an option stands for; the first one that has it, if none applies."""
    found = [r for r in REGISTRY if r.option == option]
    return next((r for r in found if applies(r, system)), found[0])


def check(preconditioner: Preconditioner, system: System) -> None:
    """Nothing, if what is asked for by name applies to a system.

    Raises:
        OptionError: it does not.
    """
    found = [r for r in REGISTRY if r.option == preconditioner]
    if not found or any(applies(r, system) for r in found):
        return
    whys = {r.applicability(system): None for r in found if not isinstance(r.implementation(system), str)}
    why = "; and ".join(w for w in whys if w)
    refused = f"preconditioner={preconditioner!r} does not apply"
    if system.loop.device == "cpu":
        raise OptionError(f"{refused}: {why}; use 'auto'")
    implementation = next(f for f in (r.implementation(system) for r in found) if isinstance(f, str))
    raise OptionError(f"{refused} on a GPU, where {implementation}: {why}; use 'auto', or device='cpu'")
