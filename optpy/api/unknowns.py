"""The unknowns of a session, as a mapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, final


def no_unknown(name: str, names: tuple[str, ...]) -> str:
    """The message where an unknown of another name is asked for."""
    return f"the energy has no unknown {name!r}; it has {', '.join(map(repr, names))}"


@final
class SessionUnknowns(Mapping[str, Any]):
    """The unknowns of a session by name: a view that copies what is read, when it is read; called, copies of all.

    Args:
        names: of all, in order.
        copy: of one, by name.
        copy_all: by name, of one moment.
    """

    __slots__ = ("_copy", "_copy_all", "_names")

    def __init__(
        self, names: tuple[str, ...], copy: Callable[[str], Any], copy_all: Callable[[], dict[str, Any]]
    ) -> None:
        self._names, self._copy, self._copy_all = names, copy, copy_all

    def __call__(self) -> dict[str, Any]:
        """Copies of all unknowns, of one moment, of the kinds and shapes that came in."""
        return self._copy_all()

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(no_unknown(name, self._names))
        return self._copy(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping's own would copy it

    def __len__(self) -> int:
        return len(self._names)

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self(), **other}

    def __ror__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**other, **self()}

    def __repr__(self) -> str:
        return repr(self())
