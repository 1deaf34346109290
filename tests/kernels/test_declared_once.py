"""What native code and Python share, or C and CUDA, is written in one place."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from itertools import combinations, product
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "optpy"
RUN = 3
"""Lines of code in a row that are no coincidence."""


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL))


def headers(suffix: str) -> dict[str, str]:
    """The text of each header by its path in the package, comments left out."""
    found = sorted(PACKAGE.rglob(f"*{suffix}"))
    return {str(f.relative_to(PACKAGE)): without_comments(f.read_text(encoding="utf-8")) for f in found}


C, CUDA = headers(".h"), headers(".cuh")
NATIVE = C | CUDA


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Those that may declare a structure, by their paths in the package."""
    texts = {str(f.relative_to(PACKAGE)): f.read_text(encoding="utf-8") for f in sorted(PACKAGE.rglob("*.py"))}
    return {path: ast.parse(text) for path, text in texts.items() if "Structure" in text}


# -- structures --------------------------------------------------------------------------------------------------------


def structures(text: str) -> set[str]:
    """The names of those that a header declares."""
    tagged = re.findall(r"\bstruct (?:alignas\([^{;]*\) )?(\w+)\s*\{", text)
    return {*tagged, *re.findall(r"typedef struct \{[^{}]*\} (\w+);", text)}


def tables() -> set[str]:
    """The names of those that a module declares for native code."""
    calls = (node for tree in modules().values() for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {
        str(call.args[0].value)
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Structure" and isinstance(call.args[0], ast.Constant)
    }


def by_hand(tree: ast.AST) -> Iterator[int]:
    """The lines where a structure of ctypes has members that are not those of a table."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name("_fields_")], value=ast.Attribute(attr="fields")):
                pass
            case ast.Assign(targets=[ast.Name("_fields_")]) | ast.AnnAssign(target=ast.Name("_fields_")):
                yield node.lineno
            case ast.Dict(keys=[ast.Constant("_fields_"), *_], values=[value, *_]) if not isinstance(value, ast.Name):
                yield node.lineno


def test_what_a_table_declares_no_header_does() -> None:
    declared = tables()
    assert {"Context", "Kernel", "PcgIteration", "PcgState", "MgLevel", "MgChannel", "Sync"} <= declared
    found = {path: structures(text) & declared for path, text in NATIVE.items()}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_structure_is_in_two_headers() -> None:
    assert shared({path: structures(text) for path, text in NATIVE.items()}) == []


def test_members_for_python_are_those_of_a_table() -> None:
    assert [f"{path}:{line}" for path, tree in modules().items() for line in by_hand(tree)] == []


# -- constants ---------------------------------------------------------------------------------------------------------


def constants(text: str) -> set[str]:
    """The numbers that a header names: macros, members of enumerations, constants; not macros with a default."""
    defaults = set(re.findall(r"#ifndef (\w+)", text))
    macros = set(re.findall(r"^#define (\w+) +\S", text, re.MULTILINE)) - defaults
    members = {
        name for body in re.findall(r"\benum\b[^{;]*\{([^}]*)\}", text) for name in re.findall(r"(?:^|,)\s*(\w+)", body)
    }
    return macros | members | set(re.findall(r"static const(?:expr)? \w+ (\w+) =", text))


def shared(names: Mapping[str, set[str]]) -> list[str]:
    """Names that two places have."""
    return [
        f"{name}: {first}, {second}"
        for first, second in combinations(names, 2)
        for name in sorted(names[first] & names[second])
    ]


def test_no_constant_is_in_two_headers() -> None:
    assert shared({path: constants(text) for path, text in NATIVE.items()}) == []


# -- code --------------------------------------------------------------------------------------------------------------


def runs(text: str) -> set[tuple[str, ...]]:
    """All lines of code that follow one another, braces alone left out."""
    lines = [" ".join(line.split()) for line in text.splitlines()]
    code = [line for line in lines if re.search(r"\w", line) and not line.startswith("#")]
    return {tuple(code[n : n + RUN]) for n in range(len(code) - RUN + 1)}


def test_no_lines_are_in_c_and_in_cuda() -> None:
    pairs = product(C.items(), CUDA.items())
    copies = {(h, cuh): runs(text) & runs(other) for (h, text), (cuh, other) in pairs}
    assert {names: found for names, found in copies.items() if found} == {}


# -- the checks themselves ---------------------------------------------------------------------------------------------

COPY = """
enum { A, B = 2, C_OF /* three */ };
#define D 4
#ifndef E
#define E 5
#endif
static const double F = 6;
typedef struct Tagged { int x; } Tagged;
typedef struct {
    int y;
} Plain;
struct alignas(16) Aligned { int z; };
OPTPY_FN void see(Plain *s) {
    s->y = 1; // one
    s->y += 2;
    s->y *= 3;
}
"""


def test_copies_are_found() -> None:
    text = without_comments(COPY)
    assert structures(text) == {"Tagged", "Plain", "Aligned"}
    assert constants(text) == {"A", "B", "C_OF", "D", "F"}
    assert shared({"a.h": constants(text), "b.cuh": {"D", "G"}}) == ["D: a.h, b.cuh"]
    other = "    if (x) {\n  s->y = 1;\n\n  s->y += 2;  }\n s->y += 2;\n  s->y *= 3;"
    assert runs(text) & runs(other) == set()
    assert runs(text) & runs(other.replace("  }\n s->y += 2;", "")) == {("s->y = 1;", "s->y += 2;", "s->y *= 3;")}


def test_members_by_hand_are_found() -> None:
    by_table = "class A(ctypes.Structure):\n    _fields_ = TABLE.fields\n"
    hand = 'class A(ctypes.Structure):\n    _fields_ = [("x", c_int)]\n'
    made = 'type("A", (ctypes.Structure,), {"_fields_": [("x", c_int)]})\n'
    assert [list(by_hand(ast.parse(text))) for text in (by_table, hand, made)] == [[], [2], [1]]
