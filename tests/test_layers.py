"""The rules of the house, read from the source of every module: who may import whom, and how much is in one place."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "optpy"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a room of optpy may import, beside the standard library, itself and `optpy.errors`."""

    rooms: frozenset[str]
    """A room stands for those inside it, too."""
    libraries: frozenset[str]


def rule(rooms: str = "", libraries: str = "") -> Rule:
    return Rule(frozenset(rooms.split()), frozenset(libraries.split()))


METHOD = "ir energy.derive kernels linear solver"
"""What each method of linear solving may import."""

RULES = {
    "errors": rule(),
    "own_code": rule(),
    "terminal": rule(),
    "symbolic": rule("", "numpy sympy"),
    "ir": rule("symbolic", "numpy"),
    "drawing": rule("symbolic ir energy solver", "numpy matplotlib mpl_toolkits latex2mathml"),
    "energy.language": rule("symbolic ir", "numpy"),
    "energy.data": rule("symbolic ir energy.language", "numpy"),
    "energy.manifolds": rule("symbolic ir energy.language energy.data", "numpy"),
    "energy.derive": rule("symbolic ir energy.language", "numpy"),
    "energy.check": rule("symbolic ir energy.language energy.data energy.derive drawing", "numpy scipy"),
    "energy": rule("symbolic ir energy drawing", "numpy scipy sympy"),
    "kernels.codegen": rule("symbolic ir kernels.toolchain", "numpy"),
    "kernels.toolchain": rule("terminal", "numpy platformdirs filelock ziglang cupy"),
    "kernels.runtime": rule("symbolic ir kernels.codegen kernels.toolchain", "numpy cupy"),
    "kernels": rule(),
    "scheduling": rule("symbolic ir energy.language energy.derive kernels.codegen"),
    "solver": rule("drawing terminal", "numpy matplotlib rich"),
    "linear.pcg": rule(METHOD, "numpy"),
    "linear.jacobi": rule(METHOD, "numpy"),
    "linear.multigrid": rule(METHOD, "numpy"),
    "linear.aggregation": rule(METHOD, "numpy scipy"),
    "linear.assembled": rule(METHOD, "numpy scipy"),
    "linear.cholesky": rule(METHOD, "numpy scipy"),
    "linear": rule(METHOD, "numpy"),
    "api": rule("own_code symbolic ir energy kernels scheduling linear solver", "numpy"),
    "__init__": rule("own_code ir energy solver api drawing"),
    "__main__": rule("cli"),
    "examples": rule(),
    "cli": rule("symbolic ir energy kernels api", "numpy click rich"),
}
"""The rules of the rooms, those of outer ones for what stands in them beside inner ones."""

MOST_LINES, MOST_LINES_OF_A_FUNCTION = 400, 40


@dataclass(frozen=True, slots=True)
class Import:
    file: Path
    line: int
    module: str
    """Absolute: "optpy.energy.energy"."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


@functools.cache
def nodes_of(file: Path) -> list[ast.AST]:
    """All nodes of a file, the module first."""
    return [*ast.walk(ast.parse(file.read_text(encoding="utf-8")))]


def imports_of(file: Path) -> Iterator[Import]:
    """Every import of a file, also inside functions, and those for type checkers only."""
    package = file.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in nodes_of(file):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield Import(file, node.lineno, name if name in MODULES else module)


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str:
    """The innermost room that a module of optpy stands in; "" is optpy itself."""
    name = module.removeprefix("optpy").removeprefix(".")
    around = [room for room in RULES if f"{name}.".startswith(f"{room}.")]
    return max(around, key=len, default=name)


OPTPY_FILES = sorted(PACKAGE.rglob("*.py"))
MODULES = {module_of(file): file for file in OPTPY_FILES}
SOURCES = [f for f in sorted(PACKAGE.rglob("*")) if f.suffix in (".py", ".h", ".cuh", ".c", ".cu")]
PROBLEM_FILES = sorted((ROOT / "problems").rglob("*.py"))
OUTPUT_FILES = "optpy.cli.output_file"
"""How all programs here leave files, in one place: the only thing of optpy without a public name that problems use."""


def test_every_room_has_a_rule_and_every_rule_a_room() -> None:
    assert {room_of(module) or "__init__" for module in MODULES} == RULES.keys()
    folders = {room_of(module) for module, file in MODULES.items() if file.name == "__init__.py"} - {""}
    inner = {"ir.loops", "kernels.codegen.cuda", "kernels.codegen.passes", "kernels.runtime.cuda"}  # parts of rooms
    assert folders | inner >= {str(f.parent.relative_to(PACKAGE)).replace("/", ".") for f in OPTPY_FILES} - {"."}


def is_allowed(found: Import, room: str) -> bool:
    top = found.module.partition(".")[0]
    allowed = RULES[room]
    if top != "optpy":
        return top in allowed.libraries or top in sys.stdlib_module_names
    if found.module == "optpy":  # its public names: only the command line may
        return room == "cli"
    target = room_of(found.module)
    return target in (room, "errors") or any(f"{target}.".startswith(f"{r}.") for r in allowed.rooms)


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_what_it_may(module: str) -> None:
    room = room_of(module) or "__init__"
    for found in imports_of(MODULES[module]):
        assert is_allowed(found, room), found


def test_imports_make_no_cycle() -> None:
    order: TopologicalSorter[str] = TopologicalSorter()
    for module, file in MODULES.items():
        order.add(module, *({found.module for found in imports_of(file)} & MODULES.keys() - {module}))
    try:
        order.prepare()
    except CycleError as error:
        pytest.fail(" is imported by ".join(error.args[1]))


def lines_of(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def test_no_room_holds_more_than_a_fifth() -> None:
    lines: Counter[Path] = Counter()
    for file in SOURCES:
        lines[file.parent] += lines_of(file)
    ((largest, most),) = lines.most_common(1)
    assert most <= lines.total() / 5, f"{largest.relative_to(ROOT)} has {most} of {lines.total()} lines"


def test_no_file_is_too_long() -> None:
    assert not [str(f.relative_to(PACKAGE)) for f in SOURCES if lines_of(f) > MOST_LINES]


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function, its docstring and its decorators apart."""
    assert node.end_lineno is not None
    first = node.body[0]
    docstring = 0
    if ast.get_docstring(node) is not None:
        assert first.end_lineno is not None
        docstring = first.end_lineno - first.lineno + 1
    return node.end_lineno - node.lineno + 1 - docstring


@pytest.mark.parametrize("file", OPTPY_FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_no_function_is_too_long(file: Path) -> None:
    for node in nodes_of(file):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert function_lines(node) <= MOST_LINES_OF_A_FUNCTION, f"{file}:{node.lineno} {node.name}"


def named_types(file: Path) -> Iterator[str]:
    """The classes of a file, inner ones too, and its aliases of types."""
    module, *inside = nodes_of(file)
    assert isinstance(module, ast.Module)
    yield from (node.name for node in inside if isinstance(node, ast.ClassDef))
    for node in module.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names = [target.id for target in targets if isinstance(target, ast.Name)]
        yield from (name for name in names if re.fullmatch(r"_?[A-Z]+[a-z]\w*", name))


def test_no_two_types_have_the_same_name() -> None:
    files: dict[str, list[str]] = {}
    for file in OPTPY_FILES:
        for name in named_types(file):
            files.setdefault(name, []).append(str(file.relative_to(PACKAGE)))
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


@pytest.mark.parametrize("file", PROBLEM_FILES, ids=lambda f: f.name)
def test_problems_use_only_public_names_of_optpy(file: Path) -> None:
    for found in imports_of(file):
        assert not found.module.startswith("optpy.") or found.module == OUTPUT_FILES, found
    for node in nodes_of(file):
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


@pytest.mark.parametrize("file", OPTPY_FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_docstrings_begin_with_what_is_computed_and_not_with_a_clause(file: Path) -> None:
    hanging = re.findall(r'"""((?:What|How|Where|When|Why|Which) .*)', file.read_text(encoding="utf-8"))
    assert not hanging
