from __future__ import annotations

import numpy as np

from optpy.energy.check.ridders import Tableau


def central(x: float, h: float) -> float:
    """Of the sine."""
    return float(np.sin(x + h) - np.sin(x - h)) / (2 * h)


def alone(x: float, steps: list[float]) -> Tableau:
    tableau = Tableau()
    for h in steps:
        tableau.add(np.array([central(x, h)]), np.array([1e-16 / h]))
    return tableau


def test_differences_are_extrapolated() -> None:
    tableau = alone(0.3, [2.0**-k for k in range(1, 7)])
    np.testing.assert_allclose(tableau.best, np.cos(0.3), rtol=1e-13)
    assert abs(tableau.best - np.cos(0.3)) <= tableau.error < 1e-12


def test_a_function_whose_step_stays_keeps_what_it_was_told() -> None:
    """Its next half may come later."""
    x = [0.3, 1.2]
    steps = [(0.5, 0.5), (0.25, 0.5), (0.125, 0.25), (0.125, 0.125), (0.125, 0.125), (0.0625, 0.125)]
    tableau = Tableau()
    last = (np.inf, np.inf)
    for now in steps:
        differences = np.array([central(p, h) for p, h in zip(x, now, strict=True)])
        halved = np.array([n < b for n, b in zip(now, last, strict=True)])
        tableau.add(differences, 1e-16 / np.array(now), halved)
        last = now
    for n in range(2):
        expected = alone(x[n], sorted({s[n] for s in steps}, reverse=True))
        for name in ("best", "error", "rounding"):
            assert getattr(tableau, name)[n] == getattr(expected, name)[0]
