"""Parameters of tests that are too many for each run."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest


def but_deep(values: Iterable[Any], every_run: Container[Any]) -> list[Any]:
    """All values, as parameters: those that are not meant for every run are `deep`."""
    return [v if v in every_run else pytest.param(v, marks=pytest.mark.deep) for v in values]
