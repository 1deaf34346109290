"""The order of elimination, and the fill it makes, against the definition and against SuperLU's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from optpy.errors import InternalError
from optpy.linear.cholesky.factorisation import Factorisation
from tests.support.patterns import PATTERNS, csr, grid

pytestmark = [pytest.mark.native, pytest.mark.optimised]


@pytest.mark.parametrize("name", PATTERNS)
def test_the_order_is_a_permutation(name: str) -> None:
    pattern = PATTERNS[name]()
    order = Factorisation(*csr(pattern), 1).order
    np.testing.assert_array_equal(np.sort(order), np.arange(len(pattern)))


@pytest.mark.parametrize("name", ["chain", "star", "unconnected"])
def test_trees_are_eliminated_without_fill(name: str) -> None:
    pattern = PATTERNS[name]()
    symbolic = Factorisation(*csr(pattern), 1)
    assert symbolic.blocks == np.tril(pattern).sum()


@pytest.mark.parametrize("name", PATTERNS)
def test_blocks_and_operations_are_those_of_elimination(name: str) -> None:
    pattern = PATTERNS[name]()
    symbolic = Factorisation(*csr(pattern), 6)
    order = symbolic.order  # in a postorder of its tree
    filled = pattern[np.ix_(order, order)]
    for k in range(len(filled)):
        below = np.nonzero(filled[k + 1 :, k])[0] + k + 1
        filled[np.ix_(below, below)] = True
    assert symbolic.blocks == np.tril(filled).sum()
    heights = np.repeat(6 * np.tril(filled).sum(axis=0), 6) - np.tile(np.arange(6), len(filled))
    exact = (heights * (heights + 1) / 2).sum()
    assert exact <= symbolic.operations <= 2 * exact  # panels hold some zeros


def test_fill_on_a_grid_is_near_that_of_multiple_minimum_degree() -> None:
    pattern = scipy.sparse.csc_array(grid(40, 40))
    A = scipy.sparse.csc_array(pattern * -0.1 + 5 * scipy.sparse.eye_array(1600))
    options = dict(SymmetricMode=True)
    theirs = scipy.sparse.linalg.splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options=options).L.nnz
    ours = Factorisation(A.indptr.astype(np.int64), A.indices, 1).blocks
    natural = scipy.sparse.linalg.splu(A, permc_spec="NATURAL", diag_pivot_thresh=0, options=options).L.nnz
    assert ours < 1.15 * theirs < 0.6 * natural


def test_hubs_do_not_spoil_the_order() -> None:
    pattern = grid(30, 30)
    plain = Factorisation(*csr(pattern), 1).blocks
    pattern[450] = pattern[:, 450] = True
    assert Factorisation(*csr(pattern), 1).blocks < 1.3 * plain + 900


@pytest.mark.parametrize(
    ("rows", "columns", "block"),
    [
        ([0, 1, 2], [0, 1], 13),
        ([0, 1, 2], [0, 1], 0),
        ([0, 1, 3], [0, 1], 1),
        ([0, 2, 1], [0], 1),
        ([0, 1, 2], [0, 2], 1),
        ([0, 1, 2], [0, -1], 1),
        ([0, 2, 3], [0, 1, 1], 1),
        ([0, 2, 4], [1, 0, 0, 1], 1),
        ([0, 2, 3], [0, 0, 1], 1),
        ([0, 1, 2], [1, 0], 1),
    ],
)
def test_a_pattern_that_is_none_is_refused(rows: list[int], columns: list[int], block: int) -> None:
    with pytest.raises(InternalError, match=r"pattern|block"):
        Factorisation(np.array(rows), np.array(columns), block)
