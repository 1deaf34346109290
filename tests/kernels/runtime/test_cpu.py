from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optpy as op
from optpy.kernels.runtime import cpu

pytestmark = pytest.mark.native


def test_kernels_of_residuals_are_compiled_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_c, names = vars(cpu)["compile_c"], []

    def told(source: str, *, name: str, **options: Any) -> Any:
        names.append(name)
        return compile_c(source, name=name, **options)

    monkeypatch.setattr(cpu, "compile_c", told)
    N = op.dims("N")
    i = op.indices(N)
    X = op.Unknown("X", (N,))
    data = {"X": np.zeros(5), "a": np.array([1.0, -2.0, -1.0, -4.0, 3.0])}
    session = op.compile(op.Energy(depth=op.log(X[i] - op.Array("a", (N,))[i])), "cpu", np.float64).start(data)
    assert names == ["energy"]
    with pytest.raises(op.DataError, match=r"depth.*is nan at \[N=0\]"):
        session.run()
    assert names == ["energy", "late"]
    with pytest.raises(op.DataError, match=r"depth.*is nan at \[N=0\]"):
        session.run()
    assert names == ["energy", "late"]


def test_where_they_cannot_be_compiled_the_term_is_still_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_c = vars(cpu)["compile_c"]

    def without_room(source: str, *, name: str, **options: Any) -> Any:
        if name == "late":
            raise op.CompileError("no room is left")
        return compile_c(source, name=name, **options)

    monkeypatch.setattr(cpu, "compile_c", without_room)
    N = op.dims("N")
    X = op.Unknown("X", (N,))
    energy = op.Energy(depth=op.log(X[op.indices(N)]))
    with pytest.raises(op.DataError, match=r"cost is nan \(term 'depth'\).*since no room is left"):
        op.compile(energy, "cpu", np.float64).solve({"X": np.full(5, -1.0)})
