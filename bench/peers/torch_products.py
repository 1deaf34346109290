"""J^T J p by PyTorch: torch.func.jvp and vjp of the residuals in residuals.py, compiled where that works."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.case import Data
from bench.peers import PeerMissingError
from bench.peers.products import PeerProduct
from bench.peers.residuals import RESIDUALS, jtj

NAME = "PyTorch, jvp and vjp"


def product(case_name: str, data: Data, p: dict[str, Any], device: str = "cuda", compiled: bool = True) -> PeerProduct:
    """The product at the unknowns in the data.

    Args:
        data, p: arrays of NumPy or CuPy, float32.
        device: "cuda", or "cpu" to look at its results only.
        compiled: by torch.compile; its name says so where that works, else the operations run one by one.

    Raises:
        PeerMissingError: PyTorch is not here, or sees no such device; or nobody has written the residuals.
    """
    if case_name not in RESIDUALS:
        raise PeerMissingError(f"the residuals of {case_name} are not written for it")
    torch = _torch(device)
    placed = {name: _placed(torch, device, value) for name, value in data.items()}
    vector = {name: _placed(torch, device, value).reshape(placed[name].shape) for name, value in p.items()}
    if "edges" in placed:
        placed["edges"] = placed["edges"].long()
    others = {name: value for name, value in placed.items() if name not in RESIDUALS[case_name][1]}
    x = {name: placed[name] for name in RESIDUALS[case_name][1]}
    function: Callable[..., Any] = jtj(case_name, torch, torch.func.jvp, torch.func.vjp, others)
    function, how = _compiled(torch, function, x, vector) if compiled else (function, "operation by operation")

    def wait(result: Any) -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def to_host(result: Any) -> dict[str, Any]:
        return {name: value.detach().cpu().numpy() for name, value in result.items()}

    return PeerProduct(f"{NAME}, {how}", lambda: function(x, vector), wait, to_host)


def _compiled(torch: Any, function: Callable[..., Any], x: Any, p: Any) -> tuple[Callable[..., Any], str]:
    try:
        compiled = torch.compile(function)
        compiled(x, p)
    except Exception as error:  # whatever it cannot do: the report has it
        return function, f"operation by operation (torch.compile: {type(error).__name__})"
    return compiled, "compiled"


def _torch(device: str) -> Any:
    try:
        torch = importlib.import_module("torch")
    except ImportError as missing:
        raise PeerMissingError("not installed; pip install torch") from missing
    if device == "cuda" and not torch.cuda.is_available():
        raise PeerMissingError("this PyTorch sees no GPU; install one with CUDA")
    return torch


def _placed(torch: Any, device: str, value: Any) -> Any:
    if np.ndim(value) == 0:
        return float(value)
    if not isinstance(value, np.ndarray):
        # A bool is a byte on its way: not every version passes it on as it is.
        passed = torch.from_dlpack(value.view(np.uint8) if value.dtype == bool else value)
        return passed.bool() if value.dtype == bool else passed
    return torch.from_numpy(value.astype(np.float32) if value.dtype == np.float64 else value.copy()).to(device)
