"""The places at which residuals read their fields."""

from __future__ import annotations

from optpy import ir
from optpy.energy.language.naming import shown
from optpy.symbolic.affine import Affine, Atom
from optpy.symbolic.traverse import variables


def places_read(residual: ir.Residual) -> dict[ir.Field, list[str]]:
    """For each field, unknowns first, the places it is read at, each once, nearest first.

    A place is ``(0, 1)``, an offset from the residual's own point, or an index as the user wrote it, ``[2*i + 1]``.
    """
    places: dict[ir.Field, list[str]] = {}
    for access in _accesses(residual):
        text = _place(access, residual)
        if text not in places.setdefault(access.field, []):
            places[access.field].append(text)
    planes = [v.key for v in variables(residual.components) if isinstance(v.key, ir.Plane)]
    for field in dict.fromkeys(p.field for p in planes):
        places.setdefault(field, []).append("computed places")
    return places


def offsets_read(residual: ir.Residual) -> dict[ir.Field, frozenset[tuple[int, ...]]]:
    """For each field that is read at constant offsets from the residual's own point alone, those offsets."""
    found: dict[ir.Field, set[tuple[int, ...]] | None] = {}
    for access in _accesses(residual):
        offset, known = _offset(access, residual), found.setdefault(access.field, set())
        found[access.field] = None if offset is None or known is None else known | {offset}
    return {field: frozenset(offsets) for field, offsets in found.items() if offsets is not None}


def _accesses(residual: ir.Residual) -> list[ir.Access]:
    accesses = [v.key for v in variables(residual.components) if isinstance(v.key, ir.Access)]
    return sorted(accesses, key=lambda a: (a.field.role is not ir.Role.UNKNOWN, a.field.name, _distance(a)))


def _offset(access: ir.Access, residual: ir.Residual) -> tuple[int, ...] | None:
    """Its distance from the residual's own point on each axis, if it has one."""
    if len(access.index) != len(residual.domain):
        return None
    offsets = [a.offset_from(i) for a, i in zip(access.index, residual.domain, strict=True)]
    known = tuple(d for d in offsets if d is not None)
    return known if len(known) == len(offsets) else None


def _place(access: ir.Access, residual: ir.Residual) -> str:
    offset = _offset(access, residual)
    if offset is not None:
        return f"({', '.join(map(str, offset))})"
    names: dict[Atom, Affine] = {i: Affine.of(v) for i, v in zip(residual.domain, residual.written, strict=True)}
    return f"[{', '.join(shown(a.substitute(names)) for a in access.index)}]"


def _distance(access: ir.Access) -> tuple[int, str]:
    return sum(abs(a.constant) for a in access.index), str(access)
