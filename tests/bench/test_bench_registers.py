"""The registers of the kernels for GPUs are those in their machine code; no GPU is needed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import registers
from tests.support.deep import but_deep


@pytest.mark.parametrize(
    ("count", "architecture", "blocks"),
    [
        # The numbers of CUDA's occupancy calculator, for blocks of 256 threads.
        (32, "sm_90", 8),
        (33, "sm_90", 6),
        (40, "sm_80", 6),
        (64, "sm_90", 4),
        (65, "sm_90", 3),
        (128, "sm_100", 2),
        (129, "sm_90", 1),
        (255, "sm_90", 1),
        (32, "sm_75", 4),
        (32, "sm_86", 6),
        (40, "sm_120", 6),
    ],
)
def test_blocks_that_the_registers_allow(count: int, architecture: str, blocks: int) -> None:
    assert registers.blocks_by_registers(count, architecture) == blocks


@pytest.mark.nvrtc
@pytest.mark.parametrize("architectures", but_deep(["sm_90", "sm_80 sm_90"], ["sm_90"]))
def test_registers_are_listed_for_every_kernel(
    architectures: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("cupy")
    path = tmp_path / "registers.json"
    registers.main(f"laplacian --architecture {architectures} --output {path}".split())
    rows = json.loads(path.read_text())
    found = {(row["architecture"], row["source"], row["kernel"]): row for row in rows}
    assert len(found) == len(rows)
    for architecture in architectures.split():
        apply = found[architecture, "pcg", "pcg_apply"]
        assert apply["shared_bytes"] == 8 * 8 + 4  # a double for each warp, and the ticket
        assert 16 <= apply["registers"] <= 64
        assert apply["occupancy"] == apply["blocks"] * 256 / 2048
        assert (architecture, "routines", "run_applyJTJ_0") in found
        assert (architecture, "pcg damped", "pcg_solve") in found
    spilling = [row for row in rows if row["local_bytes"]]
    assert all(row["kernel"] == "pcg_solve" for row in spilling)
    printed = capsys.readouterr().out
    assert ("no kernel has local memory" in printed) == (not spilling)
    assert printed.count("laplacian, float32, scatter, sm_") == len(architectures.split())


def test_spilled_registers_are_named() -> None:
    row = registers.KernelRow("warp", "float32", "scatter", "sm_90", "int", "pcg", "pcg_apply", 255, 48, 68, 1, 0.125)
    assert registers.spilled([row]) == ["warp float32 scatter sm_90 pcg_apply (pcg): 48 bytes"]


@pytest.mark.nvrtc
def test_an_architecture_that_is_not_compiled_for_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("cupy")
    with pytest.raises(SystemExit):
        registers.parse(["--architecture", "sm_1"])
    assert "NVRTC makes no machine code for 'sm_1'; there are: " in capsys.readouterr().err
