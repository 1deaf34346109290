"""docs/architecture.md names files and rooms that are there."""

from __future__ import annotations

import re

from tests.test_layers import ROOT, RULES, room_of

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:optpy|problems|tests|bench|docs)/[\w/.]*)`", TEXT)))


def test_every_file_and_folder_that_is_named_exists() -> None:
    assert len(NAMED) > 50
    assert [name for name in NAMED if not (ROOT / name).exists()] == []


def test_every_room_is_named() -> None:
    rooms = {room for room in RULES if not room.startswith("__")} - {"errors"}
    named = {room_of(name.removesuffix(".py").strip("/").replace("/", ".")) for name in NAMED if "optpy/" in name}
    assert rooms <= named


def test_functions_that_are_named_exist() -> None:
    for function, file in re.findall(r"`(\w+)` \(`(optpy/[\w/]+\.py)`\)", TEXT):
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"(def|class) {function}\b", source), f"{file} has no {function}"
