"""Operators and functions of Python and NumPy that symbols refuse, with what to write in their place."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NoReturn, final

from ..errors import EnergyError, Location


@final
class Refusal:
    """A special method that raises an ``EnergyError``, whatever it is called with.

    Args:
        message: what it says, with the object it is called on as ``{0}``.
    """

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __get__(self, instance: object, owner: type) -> Callable[..., NoReturn]:
        return self if instance is None else partial(self, instance)

    def __call__(self, instance: object, *_: object, **__: object) -> NoReturn:
        raise EnergyError(self.message.format(instance), Location.of_caller())


class Refusing(type):
    """The type of classes with refusals, which ``dir`` and ``help`` do not list."""

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not isinstance(getattr(cls, name, None), Refusal)]


class MissingAttribute(EnergyError, AttributeError):
    """A symbol has no such attribute: an ``AttributeError``, as ``hasattr`` needs it, with the user's own line."""


def missing_attribute(
    what: str, name: str, instead: Mapping[str, str | None], attributes: tuple[str, ...]
) -> AttributeError:
    """The error of an attribute that does not exist.

    Args:
        what: has none: "an element of SE3".
        name: of the attribute.
        instead: what to write for names of other libraries.
        attributes: those that exist, as they are written: ".inverse()".
    """
    if name.startswith("_"):  # Python and its libraries ask for these
        return AttributeError(f"{what} has no attribute {name!r}")
    close = difflib.get_close_matches(name.lower(), [a.strip(".()").lower() for a in attributes], n=1)
    meant = instead.get(name) or next((a for a in attributes if a.strip(".()").lower() in close), None)
    cure = f"write {meant}; " if meant else ""
    return MissingAttribute(f"{what} has no .{name}: {cure}it has {', '.join(attributes)}", Location.of_caller())


def instead_of(what: str, cure: str) -> Refusal:
    """``%`` is no operation on expressions: write this."""
    return Refusal(f"{what} is no operation on expressions: write {cure}")


def numpy_refusal(function: str, what: str = "expressions") -> EnergyError:
    """The error of a NumPy function called with symbols.

    Args:
        function: its name after "np.": "sin", "linalg.norm".
        what: it does not take.
    """
    cure = in_place_of_numpy(function)
    text = f"write {cure}" if cure else f"those of expressions are {', '.join(sorted(_language()))}"
    return EnergyError(f"np.{function} does not take {what}: {text}", Location.of_caller())


def in_place_of_numpy(function: str) -> str | None:
    """What to write for a function of NumPy, if the language has it."""
    own = f"op.{function}" if function in _language() else None
    return _IN_PLACE_OF_NUMPY.get(function, own)


def _language() -> set[str]:
    """The functions of the language, by name."""
    from . import functions

    own = {name for name, f in vars(functions).items() if getattr(f, "__module__", None) == functions.__name__}
    return {name for name in own if not name.startswith("_")}


_IN_PLACE_OF_NUMPY: Final[dict[str, str]] = {
    "absolute": "op.abs", "fabs": "op.abs", "arcsin": "op.asin", "arccos": "op.acos", "arctan": "op.atan",
    "arctan2": "op.atan2", "arcsinh": "op.asinh", "arccosh": "op.acosh", "arctanh": "op.atanh",
    "fmin": "op.minimum", "fmax": "op.maximum", "clip": "op.minimum(op.maximum(x, low), high)",
    "ceil": "-op.floor(-x)", "rint": "op.floor(x + 0.5)", "round": "op.floor(x + 0.5)",
    "around": "op.floor(x + 0.5)", "trunc": "op.sign(x) * op.floor(op.abs(x))", "fmod": "x - y * op.floor(x / y)",
    "square": "x**2", "cbrt": "op.sign(x) * op.abs(x) ** (1 / 3)", "hypot": "op.sqrt(x**2 + y**2)",
    "reciprocal": "1 / x", "log10": "op.log(x) / np.log(10)", "log2": "op.log(x) / np.log(2)",
    "log1p": "op.log(1 + x)", "expm1": "op.exp(x) - 1", "exp2": "2**x", "deg2rad": "x * (np.pi / 180)",
    "radians": "x * (np.pi / 180)", "logical_and": "a & b", "logical_or": "a | b", "logical_not": "~a",
    "sum": "v.sum()", "mean": "v.sum() / len(v)", "all": "v.all()", "any": "v.any()", "transpose": "m.T",
    "inner": "op.dot", "linalg.norm": "op.norm", "linalg.cross": "op.cross", "array": "op.vector(x, y)",
    "stack": "op.vector(x, y), or op.matrix of rows", "concatenate": "op.vector(*a, *b)",
    "hstack": "op.vector(*a, *b)", "vstack": "op.matrix([a, b])",
}  # fmt: skip
