"""What symbols refuse stays out of help, and names NumPy's users know lead to those of the language."""

from __future__ import annotations

import copy
import pydoc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.energy.refusal import _IN_PLACE_OF_NUMPY, Refusal

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


@pytest.mark.parametrize("name", sorted(_IN_PLACE_OF_NUMPY))
def test_every_name_is_numpys(name: str) -> None:
    found: Any = np
    for part in name.split("."):
        found = getattr(found, part, None) or getattr(np, part)
    assert callable(found)


@pytest.mark.parametrize("function", [np.cos, np.exp, np.maximum, np.absolute, np.sign, np.cross, np.arcsinh])
def test_the_name_that_is_offered_is_one_of_the_language(function: Any) -> None:
    arguments = [X[i]] * (2 if function in (np.maximum, np.cross) else 1)
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
