"""Cells in groups: variances against dense covariances, and the way through a release's columns."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.matrices.model import GroupedVariance, IdentityVariance
from dpsql.matrices.reading import from_columns
from dpsql.mechanisms.axis.tents import tents
from dpsql.mechanisms.axis.tree import lue_dptree
from dpsql.tree import kary_tree

GROUP = np.array([0, 2, 2, 1, 0, 3, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11])
INNER = {
    "identity": IdentityVariance(12, 3.0),
    "tree": lue_dptree(kary_tree(12, 3)).solver,
    "intervals": tents(12, (3,)).solver,
}


def dense(model: GroupedVariance) -> np.ndarray:
    """Covariance of the cells: means over groups of the covariance of the groups' sums."""
    m = model.group.max() + 1
    share = (model.group[:, None] == np.arange(m)) / np.bincount(model.group)
    pairs = np.eye(m)[:, None] + np.eye(m)[None]
    single = model.inner.quadratic(np.eye(m))
    covariance = (model.inner.quadratic(pairs.reshape(-1, m)).reshape(m, m) - single[:, None] - single) / 2
    return share @ covariance @ share.T


@pytest.mark.parametrize("kind", INNER)
def test_ranges_and_masks_are_dense_quadratic_forms(kind):
    model = GroupedVariance(GROUP, INNER[kind])
    covariance, draw = dense(model), np.random.default_rng(2)
    masks = draw.random((20, 16))
    assert np.allclose(model.quadratic(masks), np.einsum("gi,ij,gj->g", masks, covariance, masks))
    lo, hi = np.triu_indices(17, 1)
    ranges = ((np.arange(16) >= lo[:, None]) & (np.arange(16) < hi[:, None])).astype(float)
    assert np.allclose(model.ranges(lo, hi), np.einsum("gi,ij,gj->g", ranges, covariance, ranges))
    assert model.ranges([4], [4]).tolist() == [0.0]


@pytest.mark.parametrize("kind", INNER)
@pytest.mark.parametrize("cells", [16, 60])
def test_columns_bring_the_model_back(kind, cells):
    model = GroupedVariance(np.resize(GROUP, cells), INNER[kind])
    columns = model.columns()
    assert len({len(values) for values in columns.values()}) == 1
    back = from_columns(model.kind, cells, columns)
    assert back.kind == f"grouped {kind}"
    masks = np.random.default_rng(4).random((5, cells))
    assert np.array_equal(back.quadratic(masks), model.quadratic(masks))
