"""Totals of a table whose rows lie evenly over the values of its axes, for predictions before anything is published.

The rows beyond a declared bound move an answer by its share of all rows (`dpsql.answer.uncertainty.beyond`), which is
private until the release is there. Here rows lie evenly over values, few of them without one (`WITHOUT`), and the mean
of a measure lies a quarter up its bounds, where `Guess.mean_of` supposes it too. A COUNT over all rows needs no such
assumption.

**Privacy**: public facts alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from dpsql.answer.answered import AnsweredTerms
from dpsql.answer.leafsets import FloatArray, special_leaves
from dpsql.answer.plan import ReleaseView, ViewPlan
from dpsql.answer.terms import Term
from dpsql.answer.uncertainty.partial_bins import value_bounds
from dpsql.release import Release
from dpsql.star.graph import PEOPLE

WITHOUT = 0.02
"""Share of rows in each of the leaves of NULL, of no dimension row and of other values. A judgement: who declares that
a column may have none does not say how often."""


def with_even_rows(answered: AnsweredTerms, rows: float) -> AnsweredTerms:
    """Answers of a view that counts so many rows, evenly over the values of each axis."""
    release, view = answered.errors.release, answered.plan.view
    shares = [_leaf_shares(release, axis) for axis in view.axes]
    per_share = rows / _counted_share(release, view, shares)
    totals = {
        term: total
        if term.measure == PEOPLE
        else per_share * _mean(answered.plan, term, release) * _share(answered, term, shares)
        for term, total in answered.totals.items()
    }
    return replace(answered, totals=totals)


def _leaf_shares(release: Release, axis: int) -> FloatArray:
    """The share of rows in each leaf of an axis."""
    meta, leaves = release.axes[axis], np.asarray(release.atoms(axis)["leaf"])
    shares = np.bincount(leaves, minlength=meta.leaves).astype(np.float64)
    special = list(special_leaves(meta))
    shares[special] = 0.0
    shares *= (1 - WITHOUT * len(special)) / max(1.0, shares.sum())
    shares[special] = WITHOUT
    return shares


def _counted_share(release: Release, view: ReleaseView, shares: Sequence[FloatArray]) -> float:
    """The share of all rows that a view counts: all, or those that some of its few questions are about."""
    spec = release.catalog.views.get(view.name)
    if spec is None or not spec.questions:
        return 1.0
    counted = np.zeros([len(side) for side in shares], bool)
    for box in (box for question in spec.questions for box in question):
        leaves = (np.concatenate([np.arange(*ends) for ends in intervals]) for intervals in box)
        counted[np.ix_(*leaves)] = True
    cells = reduce(np.multiply.outer, shares, np.ones(()))
    return max(float(cells[counted].sum()), np.finfo(np.float64).tiny)


def _mean(plan: ViewPlan, term: Term, release: Release) -> float:
    """The mean of the values that a term adds up."""
    low, high = value_bounds(plan.view.statistics[term.measure], release)
    return (3 * low + high) / 4


def _share(answered: AnsweredTerms, term: Term, shares: Sequence[FloatArray]) -> FloatArray:
    """The share of rows that a term takes, for each group shown."""
    index = answered.errors.index
    taken = np.zeros(len(index[0]) if index else 1)
    for box in answered.plan.boxes_for(term):
        masks = answered.plan.box_masks(box)
        sides = ((mask @ share)[groups] for mask, share, groups in zip(masks, shares, index, strict=True))
        taken = taken + reduce(np.multiply, sides, np.ones(len(taken)))
    return taken
