"""The energy: named residual terms, made canonical, checked, and with the boundary rule applied."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.language.canonical import canonical_residual
from optpy.energy.language.declarations import GridArray, Unknown, shape_text
from optpy.energy.language.expression import Expression, Source, as_expression
from optpy.energy.language.fixed import canonical_fixed
from optpy.energy.language.graph import Graph, slots_text
from optpy.energy.language.index import check_name, describe
from optpy.energy.language.robust import scales_of
from optpy.errors import EnergyError, Location
from optpy.symbolic.expr import Expr
from optpy.symbolic.traverse import variables

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from optpy.energy.check.diagnosis import Diagnosis


@final
class Energy:
    """``cost = 1/2 sum of squares`` of all residuals over their whole domains.

    Args:
        fixed: for unknowns, a condition at each element; where it holds the element keeps its initial value.
        terms: each keyword names a term: an expression, or a list of them. A vector counts once for each entry.

    Raises:
        EnergyError: the energy makes no sense as written, or a term has no name.

    Attributes:
        terms: the names of the terms, in order.
        residual_terms: every residual, entries of lists one by one, over canonical loop variables.
        unknowns: in the order in which the terms first mention them.
        fields: of the unknowns and arrays that are read, in order of first mention.
        graphs: that are read, in order of first mention.
        params: that are read, in order of first mention.
        dims: all sizes, bound by the fields and the graphs.
        fixed: for the field of an unknown, its condition over ``ir.canonical_domain(field.dims)``.
        fixed_as_written: the same conditions in the user's own indices, for texts.
        compiled: the solvers made from this energy, kept by those who compile.
        scales: of robust losses, params and numbers, to be checked where data is bound.
        location: where it was made.
    """

    def __init__(self, *unnamed: Any, fixed: Mapping[Unknown, Any] | None = None, **terms: Any) -> None:
        self.location = Location.of_caller()
        if unnamed:
            many = isinstance(unnamed[0], Mapping)
            cure = "of a dict they are op.Energy(**terms)" if many else "op.Energy(fit=X[i, j] - A[i, j])"
            message = f"every term has a name, given as a keyword: {cure}; got {describe(unnamed[0])} without one"
            raise EnergyError(message, self.location)
        self.compiled: dict[Any, Any] = {}
        if not terms:
            raise EnergyError("an energy needs a term: op.Energy(fit=X[i, j] - A[i, j])", self.location)
        for name in terms:  # **{...} may bring any text; "reg[0]" is what the entries of a list are called
            check_name(name, "a term")
            if name == "bounds" and isinstance(terms[name], Mapping):
                cure = "a residual that is 0 between them, such as 100 * op.maximum(0, low - X[i])"
                raise EnergyError(f"bounds on unknowns are not there yet; {cure}, keeps them nearly", self.location)
        entries = [e for name, value in terms.items() for e in _entries(name, value, self.location)]
        self.terms = tuple(terms)
        self.residual_terms = tuple(canonical_residual(*e) for e in entries)
        self.scales = tuple(s for _, label, e in entries for s in scales_of(label, e))
        conditions = _conditions(fixed, self.location)
        mentioned = _mentioned([e for _, _, e in entries], conditions)
        self.fixed_as_written = {u.field: c for u, c in conditions.items()}
        self.fixed = {u.field: canonical_fixed(u.field, c) for u, c in conditions.items()}
        read = _read([c for r in self.residual_terms for c in r.components])
        read_at_all = read | _read(self.fixed.values())
        self.fields = tuple(s for s in mentioned if isinstance(s, ir.Field) and s in read_at_all)
        self.params = tuple(s for s in mentioned if isinstance(s, ir.Scalar) and s in read_at_all)
        self.graphs = tuple(s for s in mentioned if isinstance(s, ir.Graph) and s in read_at_all)
        self.unknowns = tuple(Unknown.of(f) for f in self.fields if f.role is ir.Role.UNKNOWN and f in read)
        for u in conditions:
            if u not in self.unknowns:
                known = ", ".join(x.name for x in self.unknowns)
                message = f"fixed names '{u.name}', which no term reads; the unknowns are {known}"
                raise EnergyError(message, self.location)
        bound = [d for f in self.fields for d in f.dims]
        self.dims = tuple(dict.fromkeys([*bound, *(g.edges for g in self.graphs)]))
        self._check_sizes()

    def _check_sizes(self) -> None:
        roots = [(r.label, r.location, r.domain, r.components) for r in self.residual_terms]
        fixed = [(f"fixed of '{f}'", self.location, (), (c,)) for f, c in self.fixed.items()]
        for label, location, domain, components in (*roots, *fixed):
            for d in [*(i.dim for i in domain), *_sizes(components)]:
                if d not in self.dims:
                    raise EnergyError(
                        f"the size {d} in '{label}' is bound by no data: no array or unknown that the energy reads "
                        f"has an axis over {d}",
                        location,
                    )
        for g in self.graphs:
            for d in g.columns:
                if d not in self.dims:
                    raise EnergyError(
                        f"the size {d}, which a slot of the graph '{g}' points into, is bound by no data: no array or "
                        f"unknown that the energy reads has an axis over {d}",
                        g.location,
                    )

    def __copy__(self) -> Energy:
        return self  # it never changes, and what was compiled for it serves every copy

    def __deepcopy__(self, memo: object) -> Energy:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an energy cannot be pickled: its expressions live in one process; pickle the data, and let each process "
            "build the energy by a function of its own (only the first one compiles: kernels are kept on disk)"
        )

    @property
    def unknown_fields(self) -> tuple[ir.Field, ...]:
        return tuple(u.field for u in self.unknowns)

    # -- looking inside --------------------------------------------------------------------------------------------

    def cost(self, data: Mapping[str, Any]) -> float:
        """``1/2 sum of squares`` of all residuals, by the NumPy interpreter in float64.

        Args:
            data: as for ``op.solve``.

        Raises:
            DataError: the data does not fit the energy.
        """
        return 0.5 * sum(float(np.sum(np.square(r))) for r in self.residuals(data).values())

    def residuals(self, data: Mapping[str, Any], *, linearised: bool = False) -> dict[str, NDArray[np.float64]]:
        """Every residual by name, of the shape of its domain plus its own; entries of a list are ``reg[0]``, ...

        The two faces of a residual differ for ``op.robust`` alone:

        - False: F with ``cost = 1/2 sum F^2``; a robust residual shows as ``s sqrt(rho(z)) r / |r|``.
        - True: F with ``J^T F`` the gradient of the cost, where J is ``jacobian``; a robust residual shows as
          ``sqrt(rho'(z)) r``.

        Args:
            data: as for ``op.solve``.
            linearised: which face.

        Raises:
            DataError: the data does not fit the energy.
        """
        from optpy.energy.check.evaluation import residuals

        return residuals(self, data, linearised)

    def jacobian(self, data: Mapping[str, Any]) -> csr_matrix:
        """The derivatives of all residuals by all unknowns, in float64: J with ``J^T F`` the gradient of the cost.

        F are ``residuals(data, linearised=True)``: the rows of a robust residual are ``sqrt(rho'(z))`` times those of
        the residual within it.

        Args:
            data: as for ``op.solve``.

        Returns:
            Rows: the residuals in their order, each raveled in C order. Columns: the unknowns in their order, each
            raveled in C order; those of fixed elements are empty. An unknown on a manifold has as many columns for
            each element as its tangent space has dimensions (``op.SO3``: 3): its derivatives are by the step delta,
            at 0, that its class describes.

        Raises:
            DataError: the data does not fit the energy.
        """
        from optpy.energy.check.evaluation import jacobian

        return jacobian(self, data)

    def diagnose(self, data: Mapping[str, Any]) -> Diagnosis:
        """Look for mistakes: unknowns that nothing determines, values that are not finite. Print what it returns.

        It finds, at the given data and in float64: elements that no residual touches; elements by which all derivatives
        are 0; residuals and derivatives that are infinite or NaN, with all that they read there; unknowns to which a
        constant may be added without changing a residual (``J 1 = 0``); and, for up to 1200 numbers solved for, the
        dimension of the null space of J. Fixed elements are no mistakes.

        Args:
            data: as for ``op.solve``.

        Raises:
            DataError: the data does not fit the energy.
        """
        from optpy.energy.check.diagnose import diagnose

        return diagnose(self, data)

    def to_sympy(self, name: str) -> Any:
        """A term in SymPy: an expression, a ``Matrix`` for vectors and matrices, a list of them for a list.

        Residuals of ``op.robust`` are given as the cost sums them.

        Args:
            name: of a term, ``"reg"``, or of an entry of a list, ``"reg[0]"``.

        Raises:
            EnergyError: there is no such term.
        """
        from optpy.energy.describe import to_sympy

        return to_sympy(self, name)

    def _repr_latex_(self) -> str:
        from optpy.energy.describe import to_latex

        return to_latex(self)

    def __repr__(self) -> str:
        from optpy.energy.describe import summary

        return summary(self)


_NO_LISTS = (Expression, np.ndarray, GridArray, Graph, str, Mapping)
"""What may be iterated over but is no list of residuals."""


def _entries(name: str, value: Any, location: Location) -> list[tuple[str, str, Expression]]:
    if isinstance(value, Iterable) and not isinstance(value, _NO_LISTS):
        entries = list(value)
        if not entries:
            raise EnergyError(f"the term '{name}' is an empty list", location)
        labels = [f"{name}[{n}]" for n in range(len(entries))]
    else:
        entries, labels = [value], [name]
    for label, entry in zip(labels, entries, strict=True):
        if isinstance(entry, list | tuple):
            raise EnergyError(
                f"'{label}' is {describe(entry)}: the entries of a list of residuals are expressions; a vector is "
                "op.vector(...)",
                location,
            )
    return [(name, label, as_expression(e)) for label, e in zip(labels, entries, strict=True)]


def _conditions(fixed: Any, location: Location) -> dict[Unknown, Expression]:
    if fixed is None:
        return {}
    if not isinstance(fixed, Mapping):
        raise EnergyError(
            f"fixed is no term but says which elements keep their value: fixed={{X: condition}}; got {describe(fixed)}",
            location,
        )
    for key in fixed:
        if not isinstance(key, Unknown):
            what = f"'{key.name}', which is an array" if isinstance(key, GridArray) else describe(key)
            raise EnergyError(f"fixed takes unknowns themselves as keys, fixed={{X: condition}}; got {what}", location)
    return {u: as_expression(c) for u, c in fixed.items()}


def _mentioned(terms: list[Expression], conditions: Mapping[Unknown, Expression]) -> tuple[Source, ...]:
    """All declarations in the order of first mention, each name once."""
    every = [*terms, *conditions.values()]
    found: dict[str, Source] = {}
    for s in (s for e in every for s in e.sources):
        other = found.setdefault(s.name, s)
        if other != s:
            raise EnergyError(
                f"the name '{s.name}' is declared twice: as {_declaration(other)} and as {_declaration(s)}; names are "
                "the keys of the data, so choose another",
                s.location,
            )
    return tuple(found.values())


def _declaration(s: Source) -> str:
    if isinstance(s, ir.Scalar):
        return f"a param ({s.location})"
    if isinstance(s, ir.Graph):
        return f"a graph with slots {slots_text(s)} ({s.location})"
    kind = "an unknown" if s.role is ir.Role.UNKNOWN else f"an array of dtype {s.dtype}"
    return f"{kind} of shape {shape_text(s)} ({s.location})"


def _read(roots: Iterable[Expr]) -> set[Source]:
    roots = list(roots)
    keys = [v.key for v in variables(roots)]
    declared = {k.field if isinstance(k, ir.Access) else k for k in keys if isinstance(k, ir.Access | ir.Scalar)}
    return {*declared, *ir.graphs_in(roots)}


def _sizes(roots: Iterable[Expr]) -> list[ir.Dim]:
    """The sizes that stand inside indices and bound checks."""
    found = []
    for v in variables(roots):
        found += [a for a in ir.atoms_of(ir.affines_of(v.key)) if isinstance(a, ir.Dim)]
        if isinstance(v.key, ir.InBounds):
            found.append(v.key.dim)
    return found
