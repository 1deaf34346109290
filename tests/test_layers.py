"""Who may import whom: the rules of the house, read from the source of every module."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "optpy"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a room of optpy may import, beside the standard library, itself and `optpy.errors`."""

    rooms: frozenset[str]
    libraries: frozenset[str]


def rule(rooms: str = "", libraries: str = "") -> Rule:
    return Rule(frozenset(rooms.split()), frozenset(libraries.split()))


RULES = {
    "errors": rule(),
    "symbolic": rule("", "numpy sympy"),
    "ir": rule("symbolic", "numpy"),
    "energy": rule("symbolic ir", "numpy scipy sympy"),
    "kernels": rule("symbolic ir linear", "numpy scipy platformdirs filelock ziglang cupy"),
    "scheduling": rule("symbolic ir energy kernels"),
    "solver": rule("", "numpy"),
    "linear": rule("ir energy kernels solver", "numpy scipy"),
    "api": rule("symbolic ir energy kernels scheduling linear solver", "numpy"),
    "__init__": rule("energy solver api"),
    "__main__": rule("cli"),
    "cli": rule("symbolic ir energy kernels api", "numpy click rich"),
}


@dataclass(frozen=True, slots=True)
class Import:
    file: Path
    line: int
    module: str
    """Absolute, with the imported name where the module is a package: "optpy.energy"."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of a file, also inside functions; those for type checkers only are left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    package = file.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(_without_type_checking(tree)):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module == "optpy":
                yield from (Import(file, node.lineno, f"optpy.{alias.name}") for alias in node.names)
            else:
                yield Import(file, node.lineno, module)


def _without_type_checking(tree: ast.Module) -> ast.Module:
    class Remover(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
            self.generic_visit(node)
            if ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                return node.orelse
            return node

    stripped: ast.Module = Remover().visit(tree)
    return stripped


def room_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


OPTPY_FILES = sorted(PACKAGE.rglob("*.py"))
PROBLEM_FILES = sorted((ROOT / "problems").rglob("*.py"))
OUTPUT_FILES = "optpy.cli.output_file"
"""How all programs here leave files, in one place: the only thing of optpy without a public name that problems use."""


def test_every_room_has_a_rule_and_every_rule_a_room() -> None:
    assert {room_of(file) for file in OPTPY_FILES} == RULES.keys()


@pytest.mark.parametrize("file", OPTPY_FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_a_room_imports_only_what_it_may(file: Path) -> None:
    room = room_of(file)
    allowed = RULES[room]
    for found in imports_of(file):
        top, *rest = found.module.split(".")
        if top == "optpy":
            # In optpy itself "import optpy" stands for its public names: only the command line may.
            target = rest[0] if rest else "the whole of optpy"
            own = {room, "errors"} if room != "cli" else {room, "errors", "the whole of optpy"}
            assert target in allowed.rooms | own, found
        else:
            assert top in allowed.libraries or top in sys.stdlib_module_names, found


@pytest.mark.parametrize("file", PROBLEM_FILES, ids=lambda f: f.name)
def test_problems_use_only_public_names_of_optpy(file: Path) -> None:
    for found in imports_of(file):
        assert not found.module.startswith("optpy.") or found.module == OUTPUT_FILES, found
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "op":
            assert not node.attr.startswith("_"), f"{file.name}:{node.lineno} uses op.{node.attr}"


def test_importing_optpy_leaves_slow_and_optional_libraries_alone() -> None:
    heavy = {"scipy", "sympy", "click", "rich", "cupy", "matplotlib", "PIL"}
    program = "import sys, optpy; print(*(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "optpy" in loaded
    assert not heavy & set(loaded)
