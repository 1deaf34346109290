"""Warm starts: the printed program of a problem, kept in the cache by a digest of the problem.

A program follows from the problem, the precision, the schedule given by hand, and optpy's own code. So it has a key
that is known before anything is differentiated. Under it lies the ``Program`` record, pickled: it has no expressions.
What a problem has declared (fields, graphs) is not in the pickle; there stands its number, and whoever loads it puts
their own declarations there, with the lines of their own file.

The entry is only a memory. Where it is damaged, or cannot be kept, the program is derived. A pickle can run code when
it is loaded; so can the libraries beside it, for whose sake no folder is opened that other users could write to.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final, final

import numpy as np

from optpy import own_code
from optpy.energy.language.naming import shown
from optpy.errors import CompileError, Location
from optpy.ir import Field, Hypergraph, Problem, Schedule, Target, tangent
from optpy.kernels.codegen.program import Program
from optpy.kernels.toolchain.cache import Cache, make_key, open_cache
from optpy.kernels.toolchain.toolchain import processor_identity
from optpy.symbolic.expr import Call, Const, Expr, Product, Sum, Var
from optpy.symbolic.order import topological


def kept_program(problem: Problem, dtype: str, given: Schedule, derived: Callable[[], Program]) -> Program:
    """The program of a problem for the CPU: the one that is kept in the cache, or a new one, which is kept from now on.

    Args:
        problem: what is minimised.
        dtype: "float32" or "float64".
        given: a schedule by hand.
        derived: differentiates, schedules and prints the problem.

    Raises:
        EnergyError: of ``derived``.
    """
    key = program_key(problem, dtype, given)
    cache = cache_of(".pickle") if key is not None else None
    if key is None or cache is None:
        return derived()
    found = _find(cache, key, problem)
    if found is None:
        found = derived()
        _keep(cache, key, problem, found)
    return found


def program_key(problem: Problem, dtype: str, given: Schedule | None = None) -> str | None:
    """The name under which the cache keeps the program of a problem for the CPU.

    Problems have one key only if their programs are the same. Lines of files are no part of it.

    Returns:
        None where the program may depend on what cannot be told: on classes that are not optpy's, or on a version of
        optpy's code that is no longer the one on disk.
    """
    return energy_key("program", problem, dtype, Target.CPU, given or Schedule())


def energy_key(name: str, problem: Problem, *more: object) -> str | None:
    """The name under which the cache keeps what follows from a problem, and from more, on this machine.

    Args:
        name: of the kind of thing.
        problem: what is minimised.
        *more: numbers, texts, or records of optpy's.

    Returns:
        None, as ``program_key``.
    """
    code = own_code.fingerprint()
    if code is None:
        return None
    digests = _StructureDigests()
    try:
        made_of = digests.of((_written(problem), *more))
    except TypeError:
        return None
    # The machine and NumPy: constants are folded by its functions, whose last digit may differ.
    machine = (sys.version, np.__version__, sys.platform, processor_identity())
    return make_key(name, made_of.hex(), code, *machine)


def _written(problem: Problem) -> tuple[Any, ...]:
    """All of a problem but lines of files."""
    names = tuple(tuple(map(shown, r.written)) for r in problem.residuals)  # the user's indices stand in reasons
    declared = (problem.unknowns, problem.fields, problem.graphs, problem.params)
    return (problem.residuals, problem.with_funcs, names, problem.fixed, *declared)


# -- digests -----------------------------------------------------------------------------------------------------------

_PLAIN: Final = (type(None), bool, int, float, str, Fraction)


@final
class _StructureDigests:
    """Digests of records and expressions: of their whole structure, the same in every process.

    An expression's own ``digest`` orders terms. It names leaves by their texts, which tell less than their records: not
    the dtype of a field, and not whether it is an unknown or the tangent of one.
    """

    def __init__(self) -> None:
        self._records: dict[int, bytes] = {}  # by identity: the problem keeps them alive
        self._expressions: dict[Expr, bytes] = {}

    def of(self, value: Any) -> bytes:
        """The digest of a number, a text, or whatever is made of them by records, tuples, mappings and expressions.

        Raises:
            TypeError: something else is in it, or a record that is not optpy's.
        """
        if isinstance(value, Expr):
            return self._expression(value)
        if isinstance(value, Enum):
            return _joined(_name(type(value)), value.name.encode())
        if type(value) in _PLAIN:
            return _joined(_name(type(value)), repr(value).encode())
        if isinstance(value, tuple | list):
            return _joined(b"sequence", *map(self.of, value))
        if isinstance(value, Mapping):
            return _joined(b"mapping", *map(self.of, value.items()))
        if is_dataclass(value) and type(value).__module__.startswith("optpy."):
            return self._record(value)
        raise TypeError(f"{type(value)} has no digest")

    def _record(self, value: Any) -> bytes:
        found = self._records.get(id(value))
        if found is None:
            parts = [self.of(getattr(value, name)) for name in _compared(value.__class__)]
            found = self._records[id(value)] = _joined(_name(type(value)), *parts)
        return found

    def _expression(self, root: Expr) -> bytes:
        known = self._expressions
        for node in topological([root], leaves=known.keys()):
            if node not in known:
                known[node] = self._node(node)
        return known[root]

    def _node(self, node: Expr) -> bytes:
        children = [self._expressions[c] for c in node.children]
        match node:
            case Const():
                return _joined(b"const", self.of(node.value))
            case Var():
                return _joined(b"var", self.of(node.key))
            case Sum():
                return _joined(b"sum", repr((node.constant, [c for c, _ in node.terms])).encode(), *children)
            case Product():
                return _joined(b"product", repr([x for _, x in node.factors]).encode(), *children)
            case Call():
                return _joined(b"call", node.op.name.encode(), *children)
        raise TypeError(f"{type(node)} has no digest")


def _name(kind: type) -> bytes:
    return f"{kind.__module__}.{kind.__qualname__}".encode()


@functools.cache
def _compared(kind: type) -> tuple[str, ...]:
    """The names of the fields by which records are equal: not lines of files, and not reasons."""
    return tuple(f.name for f in fields(kind) if f.compare)


def _joined(*parts: bytes) -> bytes:
    # Each part with its length: ["ab", "c"] and ["a", "bc"] have different digests.
    return blake2b(b"".join([b"%d:%b" % (len(part), part) for part in parts]), digest_size=16).digest()


# -- the cache ---------------------------------------------------------------------------------------------------------


def cache_of(suffix: str) -> Cache | None:
    """The cache, for files with a suffix of their own; None where there can be none, as the compiler will tell."""
    with suppress(CompileError):
        return replace(open_cache(), library_suffix=suffix)
    return None


def _find(cache: Cache, key: str, problem: Problem) -> Program | None:
    """The program that is kept under a key; None where there is none, or it is not what was kept."""
    entry = cache.find(key)
    if entry is None:
        return None
    try:
        kept_under, program = _ProgramReader(io.BytesIO(entry.library.read_bytes()), _declared(problem)).load()
    except Exception:  # pickle raises whatever damage leads it to
        kept_under, program = None, None
    if kept_under == key and isinstance(program, Program):
        return program
    with suppress(OSError):
        cache.discard(key)
    return None


def _keep(cache: Cache, key: str, problem: Problem, program: Program) -> None:
    pickled = io.BytesIO()
    try:
        _ProgramWriter(pickled, _declared(problem)).dump((key, program))
    except Exception:  # it has an expression, or a line of a file, or whatever else pickle does not take
        return
    with suppress(OSError), cache.workspace(key) as unfinished:
        unfinished.library.write_bytes(pickled.getvalue())
        cache.publish(unfinished, key)
        cache.evict()


def _declared(problem: Problem) -> tuple[Field | Hypergraph, ...]:
    """The records with a line of the user's file that a program may hold."""
    sampled = (f for f in problem.funcs if f.is_sampled)
    return (*problem.fields, *problem.graphs, *map(tangent, problem.unknowns), *sampled)


@final
class _ProgramWriter(pickle.Pickler):
    """Writes the number of what the problem has declared in place of it."""

    def __init__(self, file: io.BytesIO, declared: tuple[Field | Hypergraph, ...]) -> None:
        super().__init__(file, protocol=5)
        self._numbers = {d: n for n, d in reversed([*enumerate(declared)])}

    def persistent_id(self, obj: Any) -> int | None:
        if isinstance(obj, Location):
            raise pickle.PicklingError(f"a program has a line of the user's file, {obj}")
        return self._numbers.get(obj) if isinstance(obj, Field | Hypergraph) else None


@final
class _ProgramReader(pickle.Unpickler):
    """Reads what the problem has declared in place of its number."""

    def __init__(self, file: io.BytesIO, declared: tuple[Field | Hypergraph, ...]) -> None:
        super().__init__(file)
        self._declared = declared

    def persistent_load(self, pid: int) -> Field | Hypergraph:
        return self._declared[pid]
