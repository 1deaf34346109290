"""The residuals of three cases written by hand, for the array modules that differentiate by themselves.

A module `m` is `jax.numpy`, `torch` or NumPy. The functions return arrays whose squares sum to twice the cost.
Unknowns that are fixed must not move: see `free`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]
Residuals = Callable[[Any, Arrays, Arrays], tuple[Any, ...]]
"""Of the module, the unknowns, and the other data."""

_STEPS = ((0, 1), (0, -1), (1, 0), (-1, 0))


def image_warping(m: Any, x: Arrays, data: Arrays) -> tuple[Any, ...]:
    """The energy of problems/image_warping.py."""
    offset, angle, rest = x["Offset"], x["Angle"], data["UrShape"]
    active = data["Mask"] == 0
    pinned = (data["Constraints"][..., 0] >= 0) & (data["Constraints"][..., 1] >= 0) & active
    found = [m.where(pinned[..., None], data["w_fit"] * (offset - data["Constraints"]), 0.0)]
    for step in _STEPS:
        here, there = _overlap(step)
        c, s, d = m.cos(angle[here]), m.sin(angle[here]), rest[here] - rest[there]
        now = offset[here] - offset[there]
        both = active[here] & active[there]
        found.append(m.where(both, data["w_reg"] * (now[..., 0] - (c * d[..., 0] - s * d[..., 1])), 0.0))
        found.append(m.where(both, data["w_reg"] * (now[..., 1] - (s * d[..., 0] + c * d[..., 1])), 0.0))
    return tuple(found)


def poisson(m: Any, x: Arrays, data: Arrays) -> tuple[Any, ...]:
    """The energy of problems/poisson_image_editing.py."""
    unknown = data["Mask"] == 0
    found = []
    for step in ((0, 1), (1, 0)):
        here, there = _overlap(step)
        r = (x["X"][there] - x["X"][here]) - (data["Source"][there] - data["Source"][here])
        found.append(m.where((unknown[here] | unknown[there])[..., None], r, 0.0))
    return tuple(found)


def mesh_deformation(m: Any, x: Arrays, data: Arrays) -> tuple[Any, ...]:
    """The energy `euler` of problems/mesh_deformation.py."""
    offset, angle, rest = x["Offset"], x["Angle"], data["UrShape"]
    a, b = data["edges"][:, 0], data["edges"][:, 1]
    fit = m.where(data["Handle"][:, None], data["w_fit"] * (offset - data["Constraints"]), 0.0)
    turn, u = angle[a], rest[a] - rest[b]
    ca, cb, cc = (m.cos(turn[:, n]) for n in range(3))
    sa, sb, sc = (m.sin(turn[:, n]) for n in range(3))
    turned = (
        cc * cb * u[:, 0] + (cc * sb * sa - sc * ca) * u[:, 1] + (cc * sb * ca + sc * sa) * u[:, 2],
        sc * cb * u[:, 0] + (sc * sb * sa + cc * ca) * u[:, 1] + (sc * sb * ca - cc * sa) * u[:, 2],
        -sb * u[:, 0] + cb * sa * u[:, 1] + cb * ca * u[:, 2],
    )
    now = offset[a] - offset[b]
    return (fit, *(data["w_reg"] * (now[:, n] - turned[n]) for n in range(3)))


RESIDUALS: dict[str, tuple[Residuals, tuple[str, ...]]] = {
    "image_warping": (image_warping, ("Offset", "Angle")),
    "poisson": (poisson, ("X",)),
    "mesh_deformation": (mesh_deformation, ("Offset", "Angle")),
}
"""With the names of the unknowns."""


def free(name: str, data: Arrays) -> Any:
    """Where the unknowns of a case may move, (H, W); None: everywhere."""
    return None if name == "mesh_deformation" else data["Mask"] == 0


def jtj(name: str, m: Any, jvp: Any, vjp: Any, data: Arrays) -> Callable[[Arrays, Arrays], Arrays]:
    """J^T J p as a function of x and p, from a module's derivatives.

    Args:
        name: of the case.
        m: the module.
        jvp, vjp: as those of `jax` and `torch.func`: jvp(f, (x,), (p,)) and vjp(f, x).
    """
    function, names = RESIDUALS[name]
    mask = free(name, data)

    def kept(values: Arrays) -> dict[str, Any]:
        if mask is None:
            return dict(values)
        return {n: m.where(mask[..., None] if v.ndim == 3 else mask, v, 0.0) for n, v in values.items()}

    def product(x: Arrays, p: Arrays) -> dict[str, Any]:
        def residuals(unknowns: Arrays) -> tuple[Any, ...]:
            return function(m, unknowns, data)

        start = {n: x[n] for n in names}
        _, jp = jvp(residuals, (start,), (kept(p),))
        _, transposed = vjp(residuals, start)
        return kept(transposed(jp)[0])

    return product


def _overlap(step: tuple[int, int]) -> tuple[Any, Any]:
    """Slices of the pixels that have a neighbour at this step, and of these neighbours."""
    here, there = [], []
    for d in step:
        here.append(slice(max(0, -d), -d if d > 0 else None))
        there.append(slice(max(0, d), d if d < 0 else None))
    return np.s_[here[0], here[1]], np.s_[there[0], there[1]]
