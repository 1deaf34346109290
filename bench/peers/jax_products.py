"""J^T J p by JAX: jvp and vjp of the residuals in residuals.py, under one jit."""

from __future__ import annotations

import importlib
import os
from typing import Any

import numpy as np

from bench.case import Data
from bench.peers import PeerMissingError
from bench.peers.products import PeerProduct
from bench.peers.residuals import RESIDUALS, jtj

NAME = "JAX, jvp and vjp, jit"


def product(case_name: str, data: Data, p: dict[str, Any], device: str = "gpu") -> PeerProduct:
    """The product at the unknowns in the data.

    Args:
        data, p: arrays of NumPy or CuPy, float32.
        device: "gpu", or "cpu" to look at its results only.

    Raises:
        PeerMissingError: JAX is not here, or sees no such device; or nobody has written the residuals.
    """
    if case_name not in RESIDUALS:
        raise PeerMissingError(f"the residuals of {case_name} are not written for it")
    jax, place = _jax(device)
    placed = {name: _placed(jax, place, value) for name, value in data.items()}
    vector = {name: _placed(jax, place, value).reshape(placed[name].shape) for name, value in p.items()}
    # What does not change is an argument, not a constant in the code: XLA would compile pictures into it.
    others = {name: value for name, value in placed.items() if name not in RESIDUALS[case_name][1]}
    x = {name: placed[name] for name in RESIDUALS[case_name][1]}

    def plain(others: Any, x: Any, p: Any) -> Any:
        return jtj(case_name, jax.numpy, jax.jvp, jax.vjp, others)(x, p)

    compiled = jax.jit(plain)

    def wait(result: Any) -> None:
        jax.block_until_ready(result)

    def to_host(result: Any) -> dict[str, Any]:
        return {name: np.asarray(value) for name, value in result.items()}

    return PeerProduct(NAME, lambda: compiled(others, x, vector), wait, to_host)


def _jax(device: str) -> tuple[Any, Any]:
    # It would take three quarters of the memory at once, before optpy has any.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        jax = importlib.import_module("jax")
    except ImportError as missing:
        raise PeerMissingError("not installed; pip install 'jax[cuda12]'") from missing
    try:
        return jax, jax.devices(device)[0]
    except RuntimeError as missing:
        message = " ".join(str(missing).split())
        raise PeerMissingError(f"no {device} ({message}); pip install 'jax[cuda12]'") from missing


def _placed(jax: Any, place: Any, value: Any) -> Any:
    if np.ndim(value) == 0:
        return np.float32(value)
    if not isinstance(value, np.ndarray):
        # A bool is a byte on its way: not every version passes it on as it is.
        passed = jax.dlpack.from_dlpack(value.view(np.uint8) if value.dtype == bool else value)
        return passed.astype(bool) if value.dtype == bool else passed
    return jax.device_put(value.astype(np.float32) if value.dtype == np.float64 else value, place)
