"""The frozen records that every stage passes on: sizes, index spaces, leaves of expressions, routines.

An energy is a list of ``Residual``s. The builders in ``energy/`` turn it into ``Routine``s: maps over an index
space that store values into fields and add up sums. ``kernels/`` turns routines into native code.

How to read it, in order: ``spaces`` (sizes, domains, graphs, fields), ``leaves`` (what expressions read of them),
``residual`` (what users minimise), ``routine`` (what is computed), ``matrix`` (what is known of J^T J).
"""

from optpy.ir.leaves import (
    Access,
    InBounds,
    IndexCondition,
    IndexValue,
    Leaf,
    LocalName,
    Scalar,
    affines_of,
    atoms_of,
    entries_of,
    graphs_in,
    indices_of,
)
from optpy.ir.matrix import BlockEntry, Coupling, EdgeCoupling, NormalMatrix, NormalTerm, Uncoupled
from optpy.ir.residual import Residual
from optpy.ir.routine import Accumulate, LocalSum, Reduce, Routine, Store, in_phases, verify
from optpy.ir.spaces import (
    DTYPES,
    REAL,
    Dim,
    Domain,
    Element,
    Field,
    Graph,
    Incidence,
    Index,
    Loop,
    Manifold,
    Role,
    canonical_domain,
    entry_dim,
    loop_variable,
    point,
    tangent,
)

__all__ = [
    "DTYPES",
    "REAL",
    "Access",
    "Accumulate",
    "BlockEntry",
    "Coupling",
    "Dim",
    "Domain",
    "EdgeCoupling",
    "Element",
    "Field",
    "Graph",
    "InBounds",
    "Incidence",
    "Index",
    "IndexCondition",
    "IndexValue",
    "Leaf",
    "LocalName",
    "LocalSum",
    "Loop",
    "Manifold",
    "NormalMatrix",
    "NormalTerm",
    "Reduce",
    "Residual",
    "Role",
    "Routine",
    "Scalar",
    "Store",
    "Uncoupled",
    "affines_of",
    "atoms_of",
    "canonical_domain",
    "entries_of",
    "entry_dim",
    "graphs_in",
    "in_phases",
    "indices_of",
    "loop_variable",
    "point",
    "tangent",
    "verify",
]
