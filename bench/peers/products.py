"""A product with J^T J by somebody else, ready to be checked and timed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, slots=True)
class PeerProduct:
    """One way to compute J^T J p for one p.

    Attributes:
        name: of the peer, for tables.
        run: queues the product.
        wait: until a result of `run` is there.
        to_host: a result as NumPy's arrays by the names of the unknowns.
        nbytes: of the matrix that it stores, if it stores one.
    """

    name: str
    run: Callable[[], Any]
    wait: Callable[[Any], None]
    to_host: Callable[[Any], dict[str, Any]]
    nbytes: int = 0
