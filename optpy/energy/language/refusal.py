"""Operators and functions of Python and NumPy that symbols refuse, with what to write in their place."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NoReturn, final

from optpy.energy.language.other_names import in_place_of, language
from optpy.errors import EnergyError, Location


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


class Symbol(metaclass=Refusing):
    """A part of an energy that is no number: an index, a whole array or graph, an element of a manifold."""

    __slots__ = ()

    @property
    @abstractmethod
    def number_message(self) -> str:
        """The message where it stands in a formula like a number."""


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
    own = {a.strip(".()").lower(): a for a in attributes}
    close = difflib.get_close_matches(name.lower(), own, n=1)
    meant = own.get(name.lower()) or instead.get(name) or (own[close[0]] if close else None)
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
    cure = in_place_of(function)
    text = f"write {cure}" if cure else f"those of expressions are {', '.join(sorted(language()))}"
    return EnergyError(f"np.{function} does not take {what}: {text}", Location.of_caller())


def missing_name(name: str, public: Sequence[str]) -> AttributeError:
    """The error of a name that optpy itself does not have: ``op.arctangent``.

    Args:
        name: of the attribute.
        public: those that exist.
    """
    if name.startswith("_"):  # Python and its libraries ask for these
        return AttributeError(f"module 'optpy' has no attribute {name!r}")
    cure = in_place_of(name)
    if cure is None:
        exact = {known.lower(): known for known in public}
        close = difflib.get_close_matches(name.lower(), exact, n=1)
        text = f"did you mean op.{exact[close[0]]}?" if close else "dir(op) lists what there is"
    else:
        text = f"write {cure}"
    return MissingAttribute(f"optpy has no {name!r}: {text}", Location.of_caller())
