"""What symbols refuse stays out of help, and names NumPy's users know lead to those of the language."""

from __future__ import annotations

import copy
import inspect
import pickle
import pydoc
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.energy.language.other_names import NUMPY, OTHER_MEANING, OTHERS, language
from optpy.energy.language.refusal import Refusal

N = op.dims("N")
i = op.indices(N)
X = op.Unknown("X", (N,))


@pytest.mark.parametrize("declared", [op.Unknown, op.Array, op.Index, op.Dim, op.Expression])
def test_help_does_not_list_what_is_refused(declared: Any) -> None:
    refused = {name for base in declared.__mro__ for name, value in vars(base).items() if isinstance(value, Refusal)}
    assert "__float__" in refused
    text = pydoc.plain(pydoc.render_doc(declared))
    assert not [name for name in refused if f" {name}" in text]
    assert not refused & set(dir(declared))


def test_help_shows_what_an_unknown_is_for() -> None:
    text = pydoc.plain(pydoc.render_doc(op.Unknown))
    for part in ("solved for", "__getitem__", "channels", "dims"):
        assert part in text


def test_a_size_alone_is_no_list_of_sizes() -> None:
    assert op.Unknown("Y", N).dims == (N,)
    assert not isinstance(N, Iterable)


@pytest.mark.parametrize("name", sorted(NUMPY))
def test_every_name_is_numpys(name: str) -> None:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part, None) or getattr(np, part)
    assert callable(found)


@pytest.mark.parametrize(
    "function",
    [np.cos, np.exp, np.maximum, np.absolute, np.sign, np.cross, np.arcsinh,
     np.clip, np.hypot, np.log1p],
)  # fmt: skip
def test_the_name_that_is_offered_is_one_of_the_language(function: Any) -> None:
    arguments = [X[i]] * (3 if function is np.clip else 2 if function in (np.maximum, np.cross, np.hypot) else 1)
    with pytest.raises(op.EnergyError) as caught:
        function(*arguments)
    offered = str(caught.value).rpartition("write op.")[2]
    assert offered in op.__all__


def test_an_attribute_that_an_expression_does_not_have() -> None:
    e = X[i] + 1
    for name, cure in (
        ("mean", r"write v\.sum\(\) / len\(v\)"),
        ("sqrt", r"write op\.sqrt"),
        ("Sum", r"write \.sum\(\)"),
    ):
        with pytest.raises(AttributeError, match=f"an expression has no .{name}: {cure}; it has .T, ") as caught:
            getattr(e, name)
        assert isinstance(caught.value, op.EnergyError)
        assert "test_refusal.py" in str(caught.value)
    assert not hasattr(e, "dtype")
    assert copy.copy(e).components == e.components


# -- names of optpy itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("arctangent", "did you mean op.arctan?"),
        ("Solv", "did you mean op.solve?"),
        ("einsum", "write a @ b"),
        ("Max", "write op.maximum"),
        ("Abs", "write op.abs"),
        ("Piecewise", "write op.where(condition, x, y)"),
        ("linalg", "write op.norm, op.dot"),
        ("dsolve", "and op.solve"),
        ("Rotation", "write op.SO3"),
        ("Sum", "write op.sum(e, over=k)"),
        ("minimize", "not there yet"),
        ("covariance", "not there yet"),
        ("xyzzy", "dir(op) lists what there is"),
    ],
)
def test_a_name_that_optpy_does_not_have(name: str, hint: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(op, name)
    assert isinstance(caught.value, op.EnergyError)
    assert f"optpy has no {name!r}: " in str(caught.value)
    assert hint in str(caught.value)
    assert "test_refusal.py" in str(caught.value)


def test_an_expression_and_numpy_give_the_same_hint() -> None:
    name = "einsum"
    hints: list[Callable[[], Any]] = [
        lambda: getattr(op, name), lambda: getattr(np, name)("i,i", X[i], X[i]), lambda: getattr(X[i], name),
    ]  # fmt: skip
    for hint in hints:
        with pytest.raises(op.EnergyError, match=r"write a @ b, \(u \* v\)\.sum\(\)"):
            hint()


@pytest.mark.parametrize("name", sorted(NUMPY | OTHERS))
def test_no_hint_for_a_name_that_there_is_and_none_to_a_name_that_there_is_not(name: str) -> None:
    assert not hasattr(op, name)
    for offered in re.findall(r"\bop\.(\w+)", (NUMPY | OTHERS)[name]):
        assert offered in op.__all__


@pytest.mark.parametrize("name", OTHER_MEANING)
def test_a_name_that_means_something_else_in_numpy(name: str) -> None:
    assert name in op.__all__
    assert not NUMPY.keys() & OTHER_MEANING.keys()
    with pytest.raises(op.EnergyError, match=re.escape(f"np.{name} does not take expressions: write v.{name}(), or ")):
        getattr(np, name)(op.vector(X[i], 1))


def test_python_still_looks_into_the_module() -> None:
    assert not hasattr(op, "xyzzy")
    assert getattr(op, "xyzzy", None) is None
    with pytest.raises(ImportError, match="cannot import name 'xyzzy'"):
        exec("from optpy import xyzzy")
    special = "__wrapped__"
    with pytest.raises(AttributeError, match="module 'optpy' has no attribute '__wrapped__'"):
        getattr(op, special)
    from optpy import cli  # a part that is not imported yet

    assert inspect.ismodule(cli)
    members = dict(inspect.getmembers(op))
    assert set(op.__all__) <= set(members)
    assert pickle.loads(pickle.dumps(op.arctan)) is op.atan
    assert copy.copy(op.solve) is op.solve
    assert inspect.getdoc(op) == op.__doc__


def test_every_function_of_the_language_is_public() -> None:
    assert language() <= set(op.__all__)
