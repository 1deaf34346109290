"""Energies whose programs are kept, as objects and as the text of a file."""

from __future__ import annotations

from typing import Any

import optpy as op
from optpy.api.pipeline import derive
from optpy.kernels.codegen.program import Program

MODULE = """
import optpy as op
H, W = op.dims("H W")
i, j = op.indices(H, W)
X = op.Unknown("X", (H, W))
A = op.Array("A", (H, W))
energy = op.Energy(fit=op.log(A[i, j]) * X[i, j], smooth=X[i, j] - X[i, j + 1])
"""


def energy_of(module: str) -> op.Energy:
    names: dict[str, Any] = {}
    exec(module, names)
    energy: op.Energy = names["energy"]
    return energy


def wave(weight: float = 2.0) -> op.Energy:
    H, W = op.dims("H W")
    i, j = op.indices(H, W)
    X, A = op.Unknown("X", (H, W)), op.Array("A", (H, W))
    return op.Energy(
        fit=X[i, j] - A[i, j],
        smooth=[weight * op.sin(X[i, j] - X[i + 1, j]), op.sin(X[i, j] - X[i, j + 1])],
        fixed={X: A[i, j] < -1},
    )


def program_of(energy: op.Energy, dtype: str = "float32", given: Any = ()) -> Program:
    return derive(energy.problem, dtype, given).listing.program
