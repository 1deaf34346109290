"""Decisions of a schedule in general: each is a choice about a thing with a name, by words, with a reason.

All of it is text: it can be printed, read back, and made by who knows no energy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Final, Self

from optpy.errors import OptionError

ALL: Final = "*"
"""The name in a decision about all things of its kind that have none of their own."""


class Decision:
    """A choice about one thing, by words.

    Attributes:
        kind: of the thing, "residual".
        words: that a choice is made of, as a text.
        named_by: the attribute that says which thing it is.
        name: of the thing, or ALL.
        choice: the words, with commas between them.
        reason: a sentence.
    """

    __slots__ = ()
    kind: ClassVar[str]
    words: ClassVar[str]
    named_by: ClassVar[str] = "name"
    reason: str

    @classmethod
    def read(cls, name: str, choice: Sequence[str], reason: str = "") -> Self:
        """The decision of such words.

        Raises:
            OptionError: they are no choice.
        """
        raise NotImplementedError

    @property
    def choice(self) -> str:
        """The words, with commas between them."""
        raise NotImplementedError

    @property
    def about(self) -> str:
        """The name of the thing, or ALL."""
        return str(getattr(self, self.named_by))

    def for_thing(self, other: Self) -> Self:
        """The same choice about another thing."""
        return replace(self, **{self.named_by: getattr(other, other.named_by)})  # type: ignore[type-var]

    def __str__(self) -> str:
        return f"{self.about}: {self.choice}"


def only(words: str, choice: Sequence[str], allowed: Sequence[str]) -> None:
    """Raises OptionError where a choice has other words than such as go together, or none."""
    if not choice or sorted(choice) != sorted(allowed):
        raise OptionError(f"{', '.join(choice) or 'nothing'!r} is no choice here; there are: {words}")


def either(yes: str, no: str, words: str, choice: Sequence[str]) -> bool:
    """Whether a choice between two words is the first; raises OptionError where it is neither."""
    only(words, choice, [w for w in (yes, no) if list(choice) == [w]])
    return choice[0] == yes
