"""The frozen records that every stage passes on: sizes, index spaces, leaves of expressions, routines.

What users write as an energy is a ``Problem``. The builders in ``energy/`` turn it into ``Routine``s: maps over an
index space that store values into fields and add up sums. ``kernels/`` turns routines into native code.

How to read it, in order: ``spaces`` (sizes, domains, graphs), ``fields`` (arrays over them, the solver's vectors),
``leaves`` (what expressions read of them), ``residual`` and ``problem`` (what is minimised), ``routine`` (what is
computed), ``group`` (when, and where), ``schedule`` (what is stored, and how), ``matrix`` (what is known of J^T J).
"""

from optpy.ir.coordinates import at_zero, is_unknown
from optpy.ir.fields import DTYPES, REAL, Field, FieldChannel, ManifoldShape, Role, Vector, VectorKind, tangent
from optpy.ir.group import LATE, VECTOR_UPDATES, Group, Preconditioning, Task, When
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
    graphs_of,
    indices_of,
    slot_read,
)
from optpy.ir.matrix import BlockEntry, Coupling, EdgeCoupling, NormalMatrix, NormalTerm, Uncoupled
from optpy.ir.points import Bindings, Slab, slabs
from optpy.ir.problem import Problem, Scale
from optpy.ir.residual import Residual
from optpy.ir.routine import Assignment, AtomicAdd, LocalSum, Reduce, Routine, in_phases, verify
from optpy.ir.schedule import (
    ChannelOrder,
    Decision,
    GridLayout,
    NormalForm,
    NormalSchedule,
    ResidualSchedule,
    Schedule,
    Split,
    StoredValue,
    Target,
    VectorSweep,
)
from optpy.ir.spaces import (
    Domain,
    Extent,
    Hypergraph,
    Incidence,
    LoopVariable,
    SumLoop,
    canonical_domain,
    entry_dim,
    loop_variable,
    point,
)

__all__ = [
    "DTYPES",
    "LATE",
    "REAL",
    "VECTOR_UPDATES",
    "Access",
    "Assignment",
    "AtomicAdd",
    "Bindings",
    "BlockEntry",
    "ChannelOrder",
    "Coupling",
    "Decision",
    "Domain",
    "EdgeCoupling",
    "Extent",
    "Field",
    "FieldChannel",
    "GridLayout",
    "Group",
    "Hypergraph",
    "InBounds",
    "Incidence",
    "IndexCondition",
    "IndexValue",
    "Leaf",
    "LocalName",
    "LocalSum",
    "LoopVariable",
    "ManifoldShape",
    "NormalForm",
    "NormalMatrix",
    "NormalSchedule",
    "NormalTerm",
    "Preconditioning",
    "Problem",
    "Reduce",
    "Residual",
    "ResidualSchedule",
    "Role",
    "Routine",
    "Scalar",
    "Scale",
    "Schedule",
    "Slab",
    "Split",
    "StoredValue",
    "SumLoop",
    "Target",
    "Task",
    "Uncoupled",
    "Vector",
    "VectorKind",
    "VectorSweep",
    "When",
    "affines_of",
    "at_zero",
    "atoms_of",
    "canonical_domain",
    "entries_of",
    "entry_dim",
    "graphs_in",
    "graphs_of",
    "in_phases",
    "indices_of",
    "is_unknown",
    "loop_variable",
    "point",
    "slabs",
    "slot_read",
    "tangent",
    "verify",
]
