"""The machine code of kernels for GPUs as instructions, by NVIDIA's disassembler; no GPU needed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

_SECTION = re.compile(r"^\.text\.(\w+):$")
_LABEL = re.compile(r"^(\.L_\w+):$")
_INSTRUCTION = re.compile(r"^/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)\s*(.*?)\s*;")
_TARGET = re.compile(r"\((\.L_\w+)\)")


@dataclass(frozen=True)
class Instruction:
    """One instruction: its operation, such as "LDG.E.U8", and its operands, without the predicate before it."""

    operation: str
    operands: str

    @property
    def target(self) -> str | None:
        """The label to which it branches, if it does."""
        found = _TARGET.search(self.operands) if self.operation.startswith("BRA") else None
        return found[1] if found else None


@dataclass(frozen=True)
class Code:
    """The instructions of a kernel, and where labels stand among them."""

    instructions: tuple[Instruction, ...]
    labels: dict[str, int]

    def count(self, *operations: str) -> int:
        """Instructions of some operations, given by their beginnings."""
        return sum(i.operation.startswith(operations) for i in self.instructions)

    @property
    def divisions_of_whole_numbers(self) -> int:
        """Divisions by what is no constant: each begins with the divisor as a real number, rounded up."""
        return sum(i.operation.startswith("I2F") and ".RP" in i.operation for i in self.instructions)

    def loops(self) -> Iterator[tuple[Instruction, ...]]:
        """What lies between each branch back and its label; the shortest first."""
        found = []
        for n, i in enumerate(self.instructions):
            start = self.labels.get(i.target, n + 1) if i.target else n + 1
            if start < n:  # not an instruction that branches to itself, which ends each kernel
                found.append(self.instructions[start : n + 1])
        yield from sorted(found, key=len)


def find_nvdisasm() -> str | None:
    """The disassembler: of the wheel nvidia-cuda-nvdisasm, or on the path."""
    try:
        files = metadata.files("nvidia-cuda-nvdisasm") or []
    except metadata.PackageNotFoundError:
        files = []
    in_wheel = (Path(str(f.locate())) for f in files if f.name in ("nvdisasm", "nvdisasm.exe"))
    return next((str(path) for path in in_wheel if path.exists()), shutil.which("nvdisasm"))


def machine_code(nvdisasm: str, cubin: Path) -> dict[str, Code]:
    """The kernels in a cubin by name."""
    done = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True)
    found: dict[str, tuple[list[Instruction], dict[str, int]]] = {}
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in map(str.strip, done.stdout.splitlines()):
        if section := _SECTION.match(line):
            instructions, labels = found[section[1]] = [], {}
        elif label := _LABEL.match(line):
            labels[label[1]] = len(instructions)
        elif instruction := _INSTRUCTION.match(line):
            instructions.append(Instruction(instruction[1], instruction[2]))
    return {name: Code(tuple(i), at) for name, (i, at) in found.items()}
