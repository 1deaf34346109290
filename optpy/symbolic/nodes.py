"""The nodes of the expression DAG, their text, and interning.

Structurally equal expressions are the same object, so equality is ``is`` and common subexpressions vanish
as they are built. There are five kinds of node:

- ``Const``: an exact integer or fraction, or a float.
- ``Var``: a leaf; its key (any hashable object with a unique ``str`` and a ``boolean`` attribute) says what
  it is.
- ``Sum``: ``constant + sum(c * e)``; like terms are collected, nested sums flattened.
- ``Product``: ``prod(base ** exponent)`` with constant exponents; numeric factors live in the enclosing
  ``Sum``.
- ``Call``: a row of the table of operations applied to arguments.

This module only stores nodes: the rules that keep them canonical are in ``expr``.
"""

from __future__ import annotations

import os
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined]  # as ``WeakValueDictionary``: in one step
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from threading import RLock
from typing import Any, Final, NoReturn, Protocol, Self, final
from weakref import ref

from optpy.symbolic.number import Number, normal
from optpy.symbolic.order import topological


class Key(Protocol):
    """The key of a leaf. ``str(key)`` must be unique among the keys of one expression.

    A key may also have an attribute ``finite``: True promises that its values are never infinite or NaN.
    """

    def __hash__(self) -> int: ...

    @property
    def boolean(self) -> bool:
        """Whether all its values are 0 or 1."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One row of the table of operations (see ``operations``)."""

    name: str
    arity: int
    evaluate: Callable[..., Any]
    """NumPy's function, also used to fold constants."""
    partials: Callable[..., tuple[Expr, ...]]
    """Partial derivatives with respect to each argument, given the arguments."""
    domain: tuple[tuple[float, float], ...]
    """An interval for each argument on which the row is checked numerically."""
    smooth: bool = True
    """False where the derivative jumps or vanishes almost everywhere by convention."""
    boolean: bool = False
    cost: int = 1
    """Rough cost in additions, for choosing between equal forms."""
    total: bool = False
    """Whether finite arguments always give a finite value."""
    simplify: Callable[..., Expr | None] | None = None
    """A simpler form of a call with the given arguments, or None."""


OPERATIONS: Final[dict[str, Operation]] = {}
"""The table of operations by name; its rows are in ``operations``."""


class Expr:
    """Base of the five kinds of node; made by ``const``, ``var``, ``add``, ``mul``, ``power``, ``call`` only.
    ``power``, ``call``.

    Attributes:
        boolean: whether the value is always 0 or 1.
        finite: whether the value is known to be finite (barring overflow), so that it needs no guard.
        children: the nodes it is made of.
        digest: a hash of the structure, the same in every process. Terms are ordered by it, never by ``id``
            or ``hash``: the same energy must always give the same text, or the cache of kernels misses.
    """

    __slots__ = ("__weakref__", "boolean", "children", "digest", "finite")
    boolean: bool
    finite: bool
    children: tuple[Expr, ...]
    digest: bytes

    def __repr__(self) -> str:
        return to_text(self)

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "expressions cannot be pickled: they are interned, and live in one process; pickle the data, and let each "
            "process build its expressions by a function of its own"
        )


@final
class Const(Expr):
    """A number."""

    __slots__ = ("value",)
    value: Number


@final
class Var(Expr):
    """A leaf."""

    __slots__ = ("key",)
    key: Any


@final
class Sum(Expr):
    """``constant + sum(c * e)``."""

    __slots__ = ("constant", "content", "primitive", "terms")
    constant: Number
    terms: tuple[tuple[Number, Expr], ...]
    content: Number | None
    """With ``primitive``, the memo of ``expr.split_content``."""
    primitive: Expr | None


@final
class Product(Expr):
    """``prod(base ** exponent)``."""

    __slots__ = ("factors", "guards")
    factors: tuple[tuple[Expr, Number], ...]
    guards: tuple[Expr, ...]
    """The boolean factors: where one of them is 0, the product is 0 whatever the others are."""


@final
class Call(Expr):
    """An operation applied to arguments."""

    __slots__ = ("args", "op")
    op: Operation
    args: tuple[Expr, ...]


# -- text ----------------------------------------------------------------------------------------------------

_LONGEST = 400
"""Longest text of a node that is written inside another one."""

_COMPARED, _ALL, _ADDED, _MULTIPLIED, _RAISED, _ATOM = range(6)
"""The precedence of a text, from the loosest."""

_COMPARISONS: Final = {"less": "<", "less_equal": "<=", "equal": "=="}

_Written = tuple[str, int]
"""A text and its precedence."""


def to_text(root: Expr) -> str:
    """Python-like text; used in messages and ``repr``.

    Short expressions are written out. In long ones, parts get names in front (``t0 = sin(x); t0*y + ...``),
    so that the text is never longer than a multiple of the number of nodes.
    """
    texts: dict[Expr, _Written] = {}
    names: list[str] = []
    for node in topological([root]):
        text, level = _text_of(node, texts)
        if len(text) > _LONGEST and node is not root:
            names.append(f"t{len(names)} = {text}; ")
            text, level = f"t{len(names) - 1}", _ATOM
        texts[node] = text, level
    return "".join(names) + texts[root][0]


def to_short_text(root: Expr, texts: dict[Expr, _Written]) -> str:
    """Text as of ``to_text``, in which a long part is no more than a hash of its structure.

    Args:
        root: the expression.
        texts: of parts, known from earlier calls; those that are made now are added. So the texts of many expressions
            that are made of one another take time in proportion to the nodes of all together.
    """
    for node in topological([root], leaves=texts.keys()):
        if node is not root and node not in texts:
            text, level = _text_of(node, texts)
            texts[node] = (text, level) if len(text) <= _LONGEST else (f"<{node.digest.hex()}>", _ATOM)
    return _text_of(root, texts)[0]


def _text_of(node: Expr, texts: Mapping[Expr, _Written]) -> _Written:
    if isinstance(node, Const):
        return str(node.value), _ATOM if node.value >= 0 and type(node.value) is int else _ADDED
    if isinstance(node, Var):
        return str(node.key), _ATOM
    if isinstance(node, Sum):
        return _sum(node, texts), _ADDED
    if isinstance(node, Product):
        if node.boolean:
            return " & ".join(_within(b, _ADDED, texts) for b, _ in node.factors), _ALL
        text = "*".join(_factor(b, x, texts) for b, x in node.factors)
        return text, _MULTIPLIED if len(node.factors) > 1 else _RAISED
    assert isinstance(node, Call)
    if node.op.name == "not":
        return f"~{_within(node.args[0], _ATOM, texts)}", _RAISED
    if node.op.name in _COMPARISONS:
        # A number stands on the right of ==, as users write it; of the others the order is the meaning.
        args = node.args[::-1] if node.op.name == "equal" and isinstance(node.args[0], Const) else node.args
        left, right = (_within(a, _ALL, texts) for a in args)
        return f"{left} {_COMPARISONS[node.op.name]} {right}", _COMPARED
    return f"{node.op.name}({', '.join(texts[a][0] for a in node.args)})", _ATOM


def _within(node: Expr, level: int, texts: Mapping[Expr, _Written]) -> str:
    """The text of a part, in parentheses if it binds less tightly than its place needs."""
    text, own = texts[node]
    return f"({text})" if own < level else text


def _factor(base: Expr, exponent: Number, texts: Mapping[Expr, _Written]) -> str:
    if exponent == 1:
        return _within(base, _RAISED, texts)
    power = exponent if type(exponent) is int and exponent > 0 else f"({exponent})"
    return f"{_within(base, _ATOM, texts)}**{power}"


def _sum(node: Sum, texts: Mapping[Expr, _Written]) -> str:
    text = "" if node.constant == 0 else str(node.constant)
    for c, e in node.terms:
        # A sum inside a sum (long sums stay nested) must keep its parentheses.
        body = _within(e, _MULTIPLIED, texts)
        if abs(c) != 1:
            body = f"{abs(c)}*{body}"
        text += (f" - {body}" if text else f"-{body}") if c < 0 else (f" + {body}" if text else body)
    return text


# -- interning -----------------------------------------------------------------------------------------------


class NodeReference(ref[Expr]):
    """A weak reference to a node, by which it is found."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


interned_nodes: dict[tuple[Any, ...], NodeReference] = {}
"""All nodes. As ``WeakValueDictionary``, with less work for each of them."""

interning_lock = RLock()
"""Held while a node is entered."""


def _find(key: tuple[Any, ...]) -> Expr | None:
    entry = interned_nodes.get(key)
    return None if entry is None else entry()


def _renew_lock() -> None:
    """In the child of a fork: the thread that held the lock may not be there."""
    global interning_lock
    interning_lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def forget(
    entry: Any, interned: dict[tuple[Any, ...], NodeReference] = interned_nodes, remove: Any = _remove_dead_weakref
) -> None:
    """Take out the entry of a node that is no more, unless its equal has been entered since."""
    # No lock: this runs wherever a node ends, in a process that ends, too, whose other threads are stopped for good.
    # Defaults, as the names of this module may be gone before the last node is.
    remove(interned, entry.key)


def _intern(key: tuple[Any, ...], node: Expr, children: tuple[Expr, ...], text: bytes) -> Expr:
    """Complete a new node and enter it, unless another thread has just entered its equal."""
    node.children = children
    node.digest = blake2b(text, digest_size=8).digest()
    entry = NodeReference(node, forget)
    entry.key = key
    with interning_lock:
        found = interned_nodes.setdefault(key, entry)()
        if found is None:  # it is no more, but has not been taken out
            interned_nodes[key] = entry
            return node
        return found


@lru_cache(maxsize=4096, typed=True)
def _text(number: Number) -> bytes:
    return repr(number).encode() + b";"


def const(value: Number) -> Const:
    """The node of a number."""
    value = normal(value)
    key = (Const, value)
    node = _find(key)
    if node is None:
        node = Const()
        node.value = value
        node.boolean, node.finite = value in (0, 1), True
        node = _intern(key, node, (), b"Const" + _text(value))
    return node  # type: ignore[return-value]


def var(key: Key) -> Var:
    """The leaf of a key."""
    slot = (Var, key)
    node = _find(slot)
    if node is None:
        node = Var()
        node.key = key
        node.boolean = key.boolean
        node.finite = node.boolean or getattr(key, "finite", False)
        node = _intern(slot, node, (), b"Var" + str(key).encode())
    return node  # type: ignore[return-value]


def _digest_of_term(term: tuple[Number, Expr]) -> bytes:
    return term[1].digest


def _digest_of_base(factor: tuple[Expr, Number]) -> bytes:
    return factor[0].digest


def make_sum(constant: Number, terms: Iterable[tuple[Number, Expr]]) -> Expr:
    """``constant + sum(c * e)`` of distinct e and normal, non-zero numbers: the bare node, ordered."""
    pairs = tuple(sorted(terms, key=_digest_of_term))
    key = (Sum, constant, pairs)
    node = _find(key)
    if node is None:
        node = Sum()
        node.constant, node.terms = constant, pairs
        node.content = node.primitive = None
        node.boolean, node.finite = False, all(e.finite for _, e in pairs)
        text = b"".join([part for c, e in pairs for part in (_text(c), e.digest)])
        node = _intern(key, node, tuple([e for _, e in pairs]), b"Sum" + _text(constant) + text)
    return node


def make_product(factors: Iterable[tuple[Expr, Number]]) -> Expr:
    """``prod(base ** exponent)`` of distinct bases and normal, non-zero exponents: the bare node, ordered."""
    pairs = tuple(sorted(factors, key=_digest_of_base))
    key = (Product, pairs)
    node = _find(key)
    if node is None:
        node = Product()
        node.factors = pairs
        node.guards = tuple([b for b, x in pairs if b.boolean and x == 1])
        node.boolean = len(node.guards) == len(pairs)
        node.finite = all(b.finite and x > 0 and type(x) is int for b, x in pairs)
        text = b"".join([part for b, x in pairs for part in (b.digest, _text(x))])
        node = _intern(key, node, tuple([b for b, _ in pairs]), b"Product" + text)
    return node


def make_call(op: Operation, args: Iterable[Expr]) -> Expr:
    """The bare node, without simplification or folding."""
    args = tuple(args)
    key = (Call, op.name, args)
    node = _find(key)
    if node is None:
        node = Call()
        node.op, node.args = op, args
        node.boolean = op.boolean
        node.finite = op.boolean or (op.total and all(a.finite for a in args))
        node = _intern(key, node, args, b"".join((b"Call", op.name.encode(), b" ", *[a.digest for a in args])))
    return node


ZERO: Final = const(0)
ONE: Final = const(1)
