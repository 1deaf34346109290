"""The options of a solve: their names, defaults and ranges, in one place."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, final

from optpy.errors import OptionError
from optpy.solver.iteration import IntermediateResult

Preconditioner = str | None
"""The name of a preconditioner, "auto", or None: who solves linear systems knows the names, and refuses others."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class SolveOptions:
    """Options of a solve; validated on construction.

    What is solved:
        method: "lm", Levenberg-Marquardt: never lets the cost rise; or "gn", Gauss-Newton: takes every full
            step (as Opt does), so the cost may rise on the way; the best point met is the one returned.
        preconditioner: of the conjugate gradients: None, "jacobi" (the diagonal of J^T J + D), "block_jacobi" (the
            block of each unknown element), "multigrid" (one cycle: on the grid that all unknowns stand on; where they
            are vertices of graphs, smoothed aggregation on the assembled matrix), "cholesky" (a factorisation of that
            matrix, so that conjugate gradients only refine), or "auto": on a grid Jacobi, then multigrid once a solve
            takes many iterations; on graphs block-Jacobi, then a factorisation where that is cheap, else multigrid;
            and back to one that was left where that costs less.
            On a GPU "multigrid" is that of one grid, "cholesky" does not run, and "auto" is block-Jacobi (Jacobi where
            all blocks are diagonal) wherever that multigrid does not apply.
        threads: CPU threads, at most 1024; None: as many as there are cores. Without effect on a GPU.

    When it stops, as `Status` tells (each test but the gradient's is made on accepted steps only; a tolerance of 0
    disables it, but that a gradient of exactly 0 ends a solve):
        max_iterations: nonlinear iterations, rejected ones included. None: as many as cost about a second or so, from
            50 for a large picture to 5000 for a fit of a few numbers. Ceres: max_num_iterations, 50.
        function_tolerance: |cost change| <= function_tolerance * cost, and so is what the model says that the step
            would gain without its damping. None: 1e-8 in float64, as SciPy, 1e-6 in float32. Ceres: 1e-6. Not used
            where op.stop_gradient makes the costs of different iterations those of different problems.
        gradient_tolerance: max_i |g_i| <= gradient_tolerance; also tested at the start. It depends on the units of the
            residuals, so it is 0: only a gradient that is nothing at all ends a solve. Ceres: 1e-10.
        cosine_tolerance: max_i |g_i| / (||J_i|| ||F||) <= cosine_tolerance, J_i the columns of J, where a step could
            gain little. None: 1e-8 in float64, 0 in float32. MINPACK: gtol.
        parameter_tolerance: ||step|| <= parameter_tolerance (||x|| + parameter_tolerance), the step as it would be
            without its damping. Ceres: 1e-8.
        max_time: seconds, compiling excluded; None: no limit.
        callback: called after every iteration with an `IntermediateResult`; StopIteration ends the solve.

    The linear solve (N&W algorithm 5.3):
        linear_iterations: at most so many. Ceres: max_linear_solver_iterations, 500; more here, where the forcing
            is tighter and an iteration costs a pass over the image.
        min_linear_iterations: at least so many. Ceres: min_linear_solver_iterations, 0.
        eta: forcing of the inexact Newton method: stop when k (Q_k - Q_{k-1}) / Q_k < eta. Nash and Sofer
            1990, N&W section 7.1. None: 0.1, as Ceres, with multigrid; else 1e-3 in the first step, then 0.01, down
            to 1e-3 where the gains of successive steps do not fall, and up to 0.1 where they fall fast or are not as
            foretold; 1e-3 in fits.
        r_tolerance: stop when sqrt(r.z) < r_tolerance sqrt(r0.z0). Off (0), as in Ceres.
        residual_reset_period: r is computed afresh every so many iterations, 0: never. Ceres: 10; here 50: each time
            costs another product with J^T J.

    Levenberg-Marquardt only (giving one of these with method="gn" is an error):
        initial_radius: of the trust region. None: 1e4, but 1 for a fit, whose unknowns have no dims: it may begin far
            from its data, where full steps lead astray. Ceres: initial_trust_region_radius, 1e4.
        max_radius: it grows no larger. Ceres: max_trust_region_radius, 1e16.
        min_radius: the solve ends when it is reached. Ceres: min_trust_region_radius, 1e-32.
        min_relative_decrease: a step is taken if cost change / model cost change exceeds it. Ceres: 1e-3.
        min_lm_diagonal, max_lm_diagonal: bounds on the scaled diagonal of J^T J in D. Ceres: 1e-6, 1e32. Where all
            of that diagonal is below 1 at the start, the lower bound is so many times its largest entry: what is damped
            then does not depend on the units of the residuals.
        jacobi_scaling: scale the unknowns by 1 / (1 + sqrt(diag(J^T J))) in D. Ceres: True.
        max_consecutive_invalid_steps: so many linear solves in a row without a usable step end the solve.
            Ceres: max_num_consecutive_invalid_steps, 5.

    What is shown:
        verbose: 0 nothing; 1 what has to be compiled, and how it ended; 2 also a line for each iteration: on stdout.

    Raises:
        OptionError: an option of the wrong type, out of range, or not used by the method.
    """

    method: Literal["lm", "gn"] = "lm"
    preconditioner: Preconditioner = "auto"
    threads: int | None = None

    max_iterations: int | None = None
    function_tolerance: float | None = None
    gradient_tolerance: float = 0.0
    cosine_tolerance: float | None = None
    parameter_tolerance: float = 1e-8
    max_time: float | None = None
    callback: Callable[[IntermediateResult], object] | None = None

    linear_iterations: int = 5000
    min_linear_iterations: int = 0
    eta: float | None = None
    r_tolerance: float = 0.0
    residual_reset_period: int = 50

    initial_radius: float | None = None
    max_radius: float = 1e16
    min_radius: float = 1e-32
    min_relative_decrease: float = 1e-3
    min_lm_diagonal: float = 1e-6
    max_lm_diagonal: float = 1e32
    jacobi_scaling: bool = True
    max_consecutive_invalid_steps: int = 5

    verbose: Literal[0, 1, 2] = 0

    def __post_init__(self) -> None:
        for name, check in _CHECKS.items():
            object.__setattr__(self, name, check(name, getattr(self, name)))
        _ordered(self, "min_linear_iterations", "linear_iterations")
        _ordered(self, "min_radius", "initial_radius")
        _ordered(self, "initial_radius", "max_radius")
        _ordered(self, "min_radius", "max_radius")
        _ordered(self, "min_lm_diagonal", "max_lm_diagonal")
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        _refuse_unused(self.method, changed)

    def first_radius(self, *, is_fit: bool) -> float:
        """initial_radius, or what suits the problem within min_radius and max_radius."""
        if self.initial_radius is not None:
            return self.initial_radius
        return min(max(1.0 if is_fit else 1e4, self.min_radius), self.max_radius)

    @classmethod
    def of(cls, **options: Any) -> Self:
        """The options a user gave by name; the others keep their defaults.

        Raises:
            OptionError: also for an unknown name, with the name that was probably meant.
        """
        for name in options:
            if name not in OPTION_NAMES:
                raise OptionError(f"unknown option '{name}'{_suggestion(name)}")
        made = cls(**options)
        _refuse_unused(made.method, options)  # also those given with their default value
        return made


OPTION_NAMES = tuple(f.name for f in fields(SolveOptions))

_LM_ONLY = (
    "initial_radius",
    "max_radius",
    "min_radius",
    "min_relative_decrease",
    "min_lm_diagonal",
    "max_lm_diagonal",
    "jacobi_scaling",
    "max_consecutive_invalid_steps",
)

# What SciPy, Ceres and Opt call our options, for the error message only: they are not accepted.
_ELSEWHERE = {
    "ftol": "function_tolerance",
    "gtol": "gradient_tolerance",
    "xtol": "parameter_tolerance",
    "tol": "function_tolerance' or 'gradient_tolerance' or 'parameter_tolerance",
    "rtol": "r_tolerance",
    "max_nfev": "max_iterations",
    "maxiter": "max_iterations",
    "max_iter": "max_iterations",
    "max_num_iterations": "max_iterations",
    "nIterations": "max_iterations",
    "max_linear_solver_iterations": "linear_iterations",
    "min_linear_solver_iterations": "min_linear_iterations",
    "lIterations": "linear_iterations",
    "q_tolerance": "eta",
    "preconditioner_type": "preconditioner",
    "initial_trust_region_radius": "initial_radius",
    "trust_region_radius": "initial_radius",
    "max_trust_region_radius": "max_radius",
    "min_trust_region_radius": "min_radius",
    "max_num_consecutive_invalid_steps": "max_consecutive_invalid_steps",
    "x_scale": "jacobi_scaling",
    "max_solver_time_in_seconds": "max_time",
    "timeout": "max_time",
    "num_threads": "threads",
    "workers": "threads",
    "callbacks": "callback",
    "disp": "verbose",
}


# What else our choices are called, for the error message only.
_MEANT = {
    "none": None,
    "levenberg-marquardt": "lm",
    "levenberg_marquardt": "lm",
    "gauss-newton": "gn",
    "gauss_newton": "gn",
}


def _suggestion(name: str) -> str:
    if name in ("device", "dtype", "deterministic", "schedule"):
        return f"; it is chosen when the energy is compiled: op.compile(energy, {name}=...)"
    if name in ("options", "opts"):
        return "; options are given one by one, by name: method='gn', max_iterations=10"
    if name in _ELSEWHERE:
        return f"; here it is called '{_ELSEWHERE[name]}'"
    if name == "bounds":
        return "; bounds on unknowns are not there yet: add a residual that is 0 between them to the energy"
    if name == "jac":
        return "; derivatives are always exact, and found by optpy"
    if name == "loss":
        return "; a robust loss is part of the energy: op.robust(residual, loss, scale=...)"
    close = difflib.get_close_matches(name, OPTION_NAMES, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; the options are: {', '.join(OPTION_NAMES)}"


def _refuse_unused(method: str, given: Any) -> None:
    unused = [name for name in given if name in _LM_ONLY]
    if method == "gn" and unused:
        names = ", ".join(f"'{name}'" for name in unused)
        raise OptionError(f"method='gn' does not use {names}: drop it, or choose method='lm'")


def _ordered(options: SolveOptions, low: str, high: str) -> None:
    least, most = getattr(options, low), getattr(options, high)
    if least is not None and most is not None and least > most:
        raise OptionError(f"'{low}' = {least} must not exceed '{high}' = {most}")


def _choice(*choices: object) -> Callable[[str, Any], object]:
    return lambda name, value: one_of(name, value, choices)


def one_of(name: str, value: Any, choices: Sequence[object], other_names: Mapping[str, object] | None = None) -> object:
    """The value of an option, if it is one of its choices.

    Args:
        name: of the option.
        value: that was given.
        choices: all that are allowed.
        other_names: what some of them are called elsewhere, for the error message only.

    Raises:
        OptionError: it is none, with the one that was probably meant.
    """
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return value
    meant = _meant(value, choices, {**_MEANT, **(other_names or {})})
    cure = f"; did you mean {meant}?" if meant else ""
    raise OptionError(f"'{name}' must be one of {', '.join(map(repr, choices))}, not {value!r}{cure}")


def _meant(value: Any, choices: Sequence[object], other_names: Mapping[str, object]) -> str | None:
    """The choice that a wrong text stands for, as it is written."""
    if not isinstance(value, str):
        return None
    text = value.lower()
    if text in other_names and other_names[text] in choices:
        return repr(other_names[text])
    by_text = {str(choice): choice for choice in choices if choice is not None}  # "nine" is not nearly None
    close = difflib.get_close_matches(text, by_text, n=1)
    return repr(by_text[close[0]]) if close else None


def _integer(low: int) -> Callable[[str, Any], int]:
    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise OptionError(f"'{name}' must be an integer, not {value!r}")
        if value < low:
            raise OptionError(f"'{name}' must be at least {low}, not {value}")
        return int(value)

    return check


def _number(low: float, high: float = math.inf, *, above: bool = False) -> Callable[[str, Any], float]:
    """A finite number in [low, high), or in (low, high) if `above`."""
    span = f"{'(' if above else '['}{low:g}, {high:g})"

    def check(name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise OptionError(f"'{name}' must be a number, not {value!r}")
        number = float(value)
        if not low <= number < high or (above and number == low):  # NaN fails too
            raise OptionError(f"'{name}' must lie in {span}, not {value}")
        return number

    return check


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise OptionError(f"'{name}' must be a name or None, not {value!r}")
    return value


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"'{name}' must be True or False, not {value!r}")
    return value


def _callable(name: str, value: Any) -> Any:
    if not callable(value):
        raise OptionError(f"'{name}' must be callable, not {value!r}")
    return value


_CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "method": _choice("lm", "gn"),
    "preconditioner": _optional(_text),
    "threads": _optional(_integer(1)),
    "max_iterations": _optional(_integer(0)),
    "function_tolerance": _optional(_number(0)),
    "gradient_tolerance": _number(0),
    "cosine_tolerance": _optional(_number(0)),
    "parameter_tolerance": _number(0),
    "max_time": _optional(_number(0, above=True)),
    "callback": _optional(_callable),
    "linear_iterations": _integer(1),
    "min_linear_iterations": _integer(0),
    "eta": _optional(_number(0, 1)),
    "r_tolerance": _number(0, 1),
    "residual_reset_period": _integer(0),
    "initial_radius": _optional(_number(0, above=True)),
    "max_radius": _number(0, above=True),
    "min_radius": _number(0, above=True),
    "min_relative_decrease": _number(0, 1),
    "min_lm_diagonal": _number(0, above=True),
    "max_lm_diagonal": _number(0, above=True),
    "jacobi_scaling": _flag,
    "max_consecutive_invalid_steps": _integer(1),
    "verbose": _choice(0, 1, 2),
}
