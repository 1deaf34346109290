"""Least-squares problems with known solutions, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from optpy.solver import Minimizer, SolveOptions, Summary
from optpy.solver.reference import ReferenceProblem, ReferenceTerm
from optpy.solver.rounding import Real


@dataclass(frozen=True)
class Known:
    """A problem, where it is started, and where its minimum is."""

    name: str
    term: ReferenceTerm
    start: Real
    minimum: Real

    def problem(self, **options: Any) -> ReferenceProblem:
        return ReferenceProblem({"fit": self.term}, self.start, **options)


def rosenbrock() -> Known:
    return Known(
        "Rosenbrock",
        ReferenceTerm(
            lambda x: np.array([10 * (x[1] - x[0] ** 2), 1 - x[0]]),
            lambda x: np.array([[-20 * x[0], 10.0], [-1.0, 0.0]]),
        ),
        np.array([-1.2, 1.0]),
        np.array([1.0, 1.0]),
    )


def powell_singular() -> Known:
    """More, Garbow and Hillstrom, problem 13: J is singular at the minimum."""

    def residual(x: Real) -> Real:
        return np.array(
            [
                x[0] + 10 * x[1],
                np.sqrt(5) * (x[2] - x[3]),
                (x[1] - 2 * x[2]) ** 2,
                np.sqrt(10) * (x[0] - x[3]) ** 2,
            ]
        )

    def jacobian(x: Real) -> Real:
        a, b = 2 * (x[1] - 2 * x[2]), 2 * np.sqrt(10) * (x[0] - x[3])
        return np.array([[1, 10, 0, 0], [0, 0, np.sqrt(5), -np.sqrt(5)], [0, a, -2 * a, 0], [b, 0, 0, -b]], np.float64)

    start = np.array([3.0, -1.0, 0.0, 1.0])
    return Known("Powell singular", ReferenceTerm(residual, jacobian), start, np.zeros(4))


def misra() -> Known:
    """The model of NIST's Misra1a, b1 (1 - exp(-b2 t)), with made-up data and no noise."""
    t = np.linspace(50.0, 800.0, 14)
    minimum = np.array([240.0, 5.5e-4])

    def model(b: Real) -> Real:
        return np.asarray(b[0] * (1 - np.exp(-b[1] * t)), np.float64)

    def jacobian(b: Real) -> Real:
        return np.column_stack([1 - np.exp(-b[1] * t), b[0] * t * np.exp(-b[1] * t)])

    data = model(minimum)
    return Known("Misra1a", ReferenceTerm(lambda b: model(b) - data, jacobian), np.array([500.0, 1e-4]), minimum)


def two_exponentials() -> Known:
    """The model of NIST's Lanczos, b1 exp(-b2 t) + b3 exp(-b4 t), with made-up data and noise.

    Its minimum is not known in closed form: NaN.
    """
    t = np.linspace(0.0, 4.0, 40)
    noise = 0.01 * np.random.default_rng(7).standard_normal(len(t))

    def model(b: Real) -> Real:
        return np.asarray(b[0] * np.exp(-b[1] * t) + b[2] * np.exp(-b[3] * t), np.float64)

    def jacobian(b: Real) -> Real:
        first, second = np.exp(-b[1] * t), np.exp(-b[3] * t)
        return np.column_stack([first, -b[0] * t * first, second, -b[2] * t * second])

    data = model(np.array([1.0, 0.4, 2.0, 3.0])) + noise
    return Known(
        "Lanczos",
        ReferenceTerm(lambda b: model(b) - data, jacobian),
        np.array([0.5, 0.2, 3.0, 4.0]),
        np.full(4, np.nan),
    )


def linear(n: int = 6, m: int = 10) -> Known:
    """F(x) = A x - y with A of full rank."""
    rng = np.random.default_rng(3)
    A, y = rng.standard_normal((m, n)), rng.standard_normal(m)
    minimum = np.linalg.lstsq(A, y, rcond=None)[0]
    return Known("linear", ReferenceTerm(lambda x: A @ x - y, lambda x: A), np.zeros(n), minimum.astype(np.float64))


class ReferenceProblemWith:
    """A reference problem whose calls a test can replace."""

    def __init__(self, inner: ReferenceProblem) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def solve(problem: ReferenceProblem, **options: Any) -> Summary:
    """From where the problem stands to the end."""
    return Minimizer(problem, SolveOptions.of(**options)).run()


def scalar(f: Callable[[float], float], df: Callable[[float], float], x: float) -> ReferenceProblem:
    """One residual of one unknown."""
    return ReferenceProblem(
        {"fit": ReferenceTerm(lambda x: np.array([f(x[0])]), lambda x: np.array([[df(x[0])]]))}, [x]
    )
