"""The energy: named residual terms, what users write and ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from optpy import ir
from optpy.energy.check import evaluation, jacobian
from optpy.energy.check.diagnose import diagnose
from optpy.energy.check.diagnosis import Diagnosis
from optpy.energy.describe import summary, to_latex, to_sympy
from optpy.energy.language.declarations import Unknown
from optpy.energy.language.index import describe
from optpy.energy.language.problem import written_problem
from optpy.errors import EnergyError, Location

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from optpy.drawing.energy_page import EnergyPage


@final
class Energy:
    """``cost = 1/2 sum of squares`` of all residuals over their whole domains.

    Args:
        fixed: for unknowns, a condition at each element; where it holds the element keeps its initial value.
        terms: each keyword names a term: an expression, or a list of them. A vector counts once for each entry.

    Raises:
        EnergyError: the energy makes no sense as written, or a term has no name.

    Attributes:
        problem: all that was written, as a record.
    """

    def __init__(self, *unnamed: Any, fixed: Mapping[Unknown, Any] | None = None, **terms: Any) -> None:
        location = Location.of_caller()
        if unnamed:
            many = isinstance(unnamed[0], Mapping)
            cure = "of a dict they are op.Energy(**terms)" if many else "op.Energy(fit=X[i, j] - A[i, j])"
            message = f"every term has a name, given as a keyword: {cure}; got {describe(unnamed[0])} without one"
            raise EnergyError(message, location)
        self.problem = written_problem(terms, fixed, location)

    @classmethod
    def of(cls, problem: ir.Problem) -> Energy:
        """The face of a problem."""
        energy = cls.__new__(cls)
        energy.problem = problem
        return energy

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the terms, in order."""
        return self.problem.terms

    @property
    def unknowns(self) -> tuple[Unknown, ...]:
        """In the order in which the terms first mention them."""
        return tuple(map(Unknown.of, self.problem.unknowns))

    @property
    def fields(self) -> tuple[ir.Field, ...]:
        """The unknowns and arrays that are read, in the order of their first mention."""
        return self.problem.fields

    @property
    def graphs(self) -> tuple[ir.Hypergraph, ...]:
        """Those that are read, in the order of their first mention."""
        return self.problem.graphs

    @property
    def params(self) -> tuple[ir.Scalar, ...]:
        """Those that are read, in the order of their first mention."""
        return self.problem.params

    @property
    def dims(self) -> tuple[ir.Extent, ...]:
        """All sizes, bound by the fields and the graphs."""
        return self.problem.dims

    def __copy__(self) -> Energy:
        return self  # it never changes, and what was compiled for it serves every copy

    def __deepcopy__(self, memo: object) -> Energy:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "an energy cannot be pickled: its expressions live in one process; pickle the data, and let each process "
            "build the energy by a function of its own (only the first one compiles: kernels are kept on disk)"
        )

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
        return evaluation.residuals(self.problem, data, linearised)

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
        return jacobian.jacobian(self.problem, data)

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
        return diagnose(self.problem, data)

    def show(self, data: Mapping[str, Any]) -> EnergyPage:
        """A page about the energy at some data, in one piece of HTML: notebooks show it, ``save`` and ``open`` do.

        It has the terms with their costs and formulas, what is declared with its sizes, the points that residuals read,
        the pattern of J where it has at most 2 million rows, and the operations of residuals and their partials.

        Args:
            data: as for ``op.solve``.

        Raises:
            DataError: the data does not fit the energy.
            OptpyError: the extra ``optpy[plot]`` is not installed.
        """
        from optpy.drawing.energy_page import energy_page

        return energy_page(self.problem, data)

    def to_sympy(self, name: str) -> Any:
        """A term in SymPy: an expression, a ``Matrix`` for vectors and matrices, a list of them for a list.

        Residuals of ``op.robust`` are given as the cost sums them.

        Args:
            name: of a term, ``"reg"``, or of an entry of a list, ``"reg[0]"``.

        Raises:
            EnergyError: there is no such term.
        """
        return to_sympy(self.problem, name)

    def _repr_latex_(self) -> str:
        return to_latex(self.problem)

    def _repr_html_(self) -> str:
        from optpy.drawing.notebook import energy_html

        return energy_html(self.problem)

    def __repr__(self) -> str:
        return summary(self.problem)
