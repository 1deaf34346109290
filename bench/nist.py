"""The 27 nonlinear fits that NIST certified: their models, as energies and in NumPy, and the reader of their files.

Statistical Reference Datasets, www.itl.nist.gov/div898/strd: each file has two starts, and the least-squares parameters
to 11 digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

import optpy as op

SITE = "www.itl.nist.gov/div898/strd"
DIGITS = 11
"""So many are certified."""
ENOUGH = 4
"""A fit with fewer digits is wrong."""

Vector = NDArray[np.float64]
Formula = Callable[[Any, Any, Any], Any]
"""(functions, parameters, predictor): what the model predicts, an expression of optpy or an array of NumPy."""


# -- the models ------------------------------------------------------------------------------------------------------


def _rational(b: Any, x: Any, above: int) -> Any:
    """A polynomial of the first parameters over one of the others, whose constant is 1."""
    top = sum(b[k] * x**k for k in range(1, above)) + b[0]
    return top / (1 + sum(b[above + k] * x ** (k + 1) for k in range(len(b) - above)))


def _exponentials(m: Any, b: Any, x: Any) -> Any:
    return b[0] * m.exp(-b[1] * x) + b[2] * m.exp(-b[3] * x) + b[4] * m.exp(-b[5] * x)


def _bells(m: Any, b: Any, x: Any) -> Any:
    bells = [b[k] * m.exp(-((x - b[k + 1]) ** 2) / b[k + 2] ** 2) for k in (2, 5)]
    return b[0] * m.exp(-b[1] * x) + bells[0] + bells[1]


def _cycle(m: Any, x: Any, period: Any, c: Any, s: Any) -> Any:
    return c * m.cos(2 * math.pi * x / period) + s * m.sin(2 * math.pi * x / period)


def _enso(m: Any, b: Any, x: Any) -> Any:
    cycles = _cycle(m, x, 12, b[1], b[2]) + _cycle(m, x, b[3], b[4], b[5]) + _cycle(m, x, b[6], b[7], b[8])
    return b[0] + cycles


def _decay(m: Any, b: Any, x: Any) -> Any:
    return m.exp(-b[0] * x) / (b[1] + b[2] * x)


def _saturation(m: Any, b: Any, x: Any) -> Any:
    return b[0] * (1 - m.exp(-b[1] * x))


FORMULAS: dict[str, Formula] = {
    "Bennett5": lambda m, b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": _saturation,
    "Chwirut1": _decay,
    "Chwirut2": _decay,
    "DanWood": lambda m, b, x: b[0] * x ** b[1],
    "ENSO": _enso,
    "Eckerle4": lambda m, b, x: b[0] / b[1] * m.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _bells,
    "Gauss2": _bells,
    "Gauss3": _bells,
    "Hahn1": lambda m, b, x: _rational(b, x, 4),
    "Kirby2": lambda m, b, x: _rational(b, x, 3),
    "Lanczos1": _exponentials,
    "Lanczos2": _exponentials,
    "Lanczos3": _exponentials,
    "MGH09": lambda m, b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda m, b, x: b[0] * m.exp(b[1] / (x + b[2])),
    "MGH17": lambda m, b, x: b[0] + b[1] * m.exp(-x * b[3]) + b[2] * m.exp(-x * b[4]),
    "Misra1a": _saturation,
    "Misra1b": lambda m, b, x: b[0] * (1 - (1 + b[1] * x / 2) ** (-2)),
    "Misra1c": lambda m, b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** (-0.5)),
    "Misra1d": lambda m, b, x: b[0] * b[1] * x * (1 + b[1] * x) ** (-1),
    "Nelson": lambda m, b, x: b[0] - b[1] * x[0] * m.exp(-b[2] * x[1]),
    "Rat42": lambda m, b, x: b[0] / (1 + m.exp(b[1] - b[2] * x)),
    "Rat43": lambda m, b, x: b[0] / (1 + m.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda m, b, x: b[0] - b[1] * x - m.atan(b[2] / (x - b[3])) / math.pi,
    "Thurber": lambda m, b, x: _rational(b, x, 4),
}

IN_NUMPY = SimpleNamespace(exp=np.exp, cos=np.cos, sin=np.sin, atan=np.arctan)


# -- the files -------------------------------------------------------------------------------------------------------


class AlteredFileError(ValueError):
    """A file whose certified parameters do not give its certified sum of squares."""


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """A file.

    Attributes:
        starts: (2, n).
        certified: the parameters, (n,).
        certified_sum: of the squares.
        y: the response as it is fitted: of Nelson the logarithm.
        x: the predictor (N,), or of Nelson both, (2, N).
    """

    name: str
    starts: Vector
    certified: Vector
    certified_sum: float
    y: Vector
    x: Vector

    def residuals(self, b: Any) -> Any:
        """In NumPy, for real or complex parameters."""
        with np.errstate(all="ignore"):
            return FORMULAS[self.name](IN_NUMPY, b, self.x) - self.y

    def jacobian(self, b: Vector) -> Vector:
        """To the last digits: by a tiny imaginary step in each parameter. Independent of optpy's derivatives."""
        step = 1e-40
        columns = [self.residuals(b + 1j * step * unit).imag / step for unit in np.eye(len(b))]
        return np.stack(columns, axis=1)

    def digits(self, b: Vector) -> float:
        """Of the worst parameter: -log10 of its relative error; from 0 to `DIGITS`, which is all that is certified."""
        if not np.isfinite(b).all():
            return 0.0
        worst = float(np.max(np.abs(b - self.certified) / np.abs(self.certified)))
        return float(np.clip(-math.log10(worst), 0, DIGITS)) if worst else float(DIGITS)

    def energy(self) -> op.Energy:
        """Its data are those of `data`."""
        N = op.dims("N")
        n = op.indices(N)
        count = len(self.certified)
        B, Y = op.Unknown("b", (), count), op.Array("y", (N,))
        X = op.Array("x", (N,)) if self.x.ndim == 1 else op.Array("x", (N,), len(self.x))
        b = [B[()][k] for k in range(count)]
        return op.Energy(fit=FORMULAS[self.name](op, b, X[n]) - Y[n])

    def data(self, start: int) -> dict[str, Any]:
        """Of `energy`, from one of the starts."""
        return {"b": self.starts[start].copy(), "x": np.ascontiguousarray(self.x.T), "y": self.y}


_PARAMETER = re.compile(r"^\s*b\d+\s*=" + r"\s+(\S+)" * 4, re.MULTILINE)
_SUM = re.compile(r"^Residual Sum of Squares:\s*(\S+)", re.MULTILINE)
_DATA_LINES = re.compile(r"Data\s+\(lines\s+(\d+)\s+to\s+(\d+)\)")


def read_fit(path: Path) -> Fit:
    """A file as NIST publishes it.

    Raises:
        ValueError: it is no such file.
        AlteredFileError: its certified values contradict one another.
    """
    text = path.read_text()
    total, lines = _SUM.search(text), _DATA_LINES.search(text)
    parameters = np.array([[float(x) for x in row] for row in _PARAMETER.findall(text)])
    if path.stem not in FORMULAS or total is None or lines is None or not len(parameters):
        raise ValueError(f"{path} is no file of NIST's nonlinear fits")
    first, last = int(lines[1]), int(lines[2])
    rows = np.array([[float(x) for x in line.split()] for line in text.splitlines()[first - 1 : last]])
    y = np.log(rows[:, 0]) if path.stem == "Nelson" else rows[:, 0]
    x = rows[:, 1] if rows.shape[1] == 2 else rows[:, 1:].T
    fit = Fit(path.stem, parameters[:, :2].T, parameters[:, 2], float(total[1]), y, x)
    _check(fit, path)
    return fit


def _check(fit: Fit, path: Path) -> None:
    """That the certified parameters, of 11 digits, give the certified sum."""
    F = fit.residuals(fit.certified)
    found = float(F @ F)
    rounding = float(np.sum((2e-10 * (np.abs(fit.y) + np.abs(F))) ** 2))  # of the 11 digits: all of Lanczos1's sum
    if not abs(found - fit.certified_sum) <= 1e-6 * fit.certified_sum + rounding:
        raise AlteredFileError(
            f"{path} is not as NIST publishes it: its certified parameters give the sum {found:.10g}, "
            f"not {fit.certified_sum:.10g}; see {SITE}"
        )


def find_fits(folders: Sequence[Path]) -> tuple[list[Fit], list[str]]:
    """All that are in some of the folders, the first that has each; and the names of those that are in none.

    A file that someone has altered counts as missing, if another folder does not have it as it was.
    """
    found: list[Fit] = []
    missing: list[str] = []
    for name in FORMULAS:
        paths = [path for folder in folders if (path := folder / f"{name}.dat").is_file()]
        fit, remarks = _first_good(paths)
        if fit is not None:
            found.append(fit)
        else:
            missing.append(remarks or name)
    return found, missing


def _first_good(paths: Sequence[Path]) -> tuple[Fit | None, str]:
    remarks: list[str] = []
    for path in paths:
        try:
            return read_fit(path), ""
        except AlteredFileError as altered:
            remarks.append(str(altered))
    return None, "; ".join(remarks)
