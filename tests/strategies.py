"""What tests ask of strategies that nothing else does: the full row matrix, and its weighted column sums."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.central.bounding import DeclaredBound, OpenSource, TableDraw
from dpsql.central.placed_rows import CountedCells
from dpsql.matrices.intervals import half_angles
from dpsql.matrices.reconcile import nonnegative, signal_tree
from dpsql.matrices.strategy import Strategy, axis_budgets, measure_view
from dpsql.mechanisms.axis import WHOLE, axis_strategy
from dpsql.mechanisms.axis.dense import DENSE_SCALE
from dpsql.mechanisms.designs.adaptive import AdaptiveRelease, unbiased_cells
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution, NoisyView
from dpsql.mechanisms.offers import AxisChoice, AxisProblem, Word
from dpsql.noise import Noise
from dpsql.tree import FloatArray, Workload

TOYS = """
dpsql: 1
name: toys
source: {kind: parquet, root: ROOT, tables: {sale: sale.parquet}}
ledger: ROOT/ledger
privacy: {lineage: toys, cap: 9, unit: row, epsilon: 1.0, DELTA}
tables:"""
"""Catalog of a toy star up to its one table."""


def dense(strategy: Strategy) -> np.ndarray:
    """The row matrix H, shape (p, n)."""
    entries = strategy.entries()
    assert entries is not None
    return entries.dense()


def by_word(
    n: int,
    word: Word | str,
    workload: Workload | None = None,
    law: NoiseDistribution = LAPLACE,
    shared: bool = False,
) -> AxisChoice:
    """What a word of the catalog gives for an axis."""
    question = AxisProblem(n, law, workload, WHOLE if shared else 0.0, DENSE_SCALE)
    return axis_strategy(question, Word(word) if isinstance(word, str) else word, shared)


def column_bound(strategy: Strategy) -> int:
    """The largest weighted column sum of a strategy, by the law's exponent."""
    entries = strategy.entries()
    assert entries is not None
    return entries.column_bound(strategy.budget, strategy.norm)


def draw_at(
    cells: np.ndarray, strategies: Sequence[Strategy], variance: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view and add Gaussian noise of a given strength."""
    exact = measure_view(cells, strategies)
    return GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, sensitivity, noise)


def svd_bound(n: int) -> float:
    """A lower bound on the mean variance of all ranges under any strategy of column norm 1.

    **Source** docs/method/views.md, "Dense rows for Gaussian noise"; singular values of all ranges in closed form.
    """
    return float((np.sqrt(n + 1) / (2 * half_angles(n))).sum() ** 2 / n / (n * (n + 1) / 2))


def error_before_blue(use: FloatArray, budget: FloatArray) -> float:
    """Mean variance of a range summed from raw node values, Laplace noise at epsilon 1.

    **Source** docs/method/views.md, "A budget for each node"; there half of it.
    """
    return float(2 * np.sum(use / budget**2))


def adaptive_cells(release: AdaptiveRelease) -> FloatArray:
    """The estimate of least error of every cell, shape (n,): not negative unless the histogram is full.

    Where most cells stand out, the non-negative step would only add bias (a citation graph: 206 before, 245
    after it). Never take a standard error from this; `unbiased_cells` has one.
    """
    cells = unbiased_cells(release)
    return cells if release.full else nonnegative(signal_tree(len(cells)), cells)


def declared_cells(scan: OpenSource, of: str) -> CountedCells:
    """The cells of a table whose `max_ids` is declared."""
    run = TableDraw(scan, of)
    assert isinstance(run.bounding, DeclaredBound)
    return run.bounding.cells(run)
