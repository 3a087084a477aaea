"""Covariances of answers of a view that was measured axis by axis, and kinds of model that no version wrote."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.reading import piece, reading
from tests.strategies import by_word

SHAPE = (11, 9)
RANDOM = np.random.default_rng(8)


def some_masks() -> list[np.ndarray]:
    return [RANDOM.normal(size=(20, n)) for n in SHAPE]


@pytest.mark.parametrize("same", [(), (0,), (1,), (0, 1)])
def test_covariances_of_kronecker_sums_are_dense_ones(same: tuple[int, ...]):
    splits = tuple(AxisSplit(by_word(n, "lue_dptree").strategy.solver) for n in SHAPE)
    model = ProductReading(splits, {(): 0.7, (0,): 2.0, (1,): 1.5, (0, 1): 3.0})
    left = some_masks()
    right = [u if i in same else w for i, (u, w) in enumerate(zip(left, some_masks(), strict=True))]
    single = []
    for split, n in zip(splits, SHAPE, strict=True):
        eye = np.eye(n)
        pairs = np.array(
            [[split.model.quadratic((eye[i] + eye[j])[None])[0] for j in range(n)] for i in range(n)]
        )
        own = np.diag(pairs) / 4
        c = (pairs - own[:, None] - own[None, :]) / 2
        total = split.total * np.outer(split.spread, split.spread)
        single.append((c - total, np.outer(split.spread, split.spread)))
    wanted = np.zeros(20)
    for part, sigma2 in model.components.items():
        parts = [single[i][0 if i in part else 1] for i in (0, 1)]
        wanted += sigma2 * np.prod(
            [np.einsum("gi,ij,gj->g", u, c, w) for u, c, w in zip(left, parts, right, strict=True)], axis=0
        )
    assert model.covariance(left, right).noise == pytest.approx(wanted, abs=1e-8)


def test_what_no_version_wrote_is_refused():
    with pytest.raises(InternalError):
        piece("replicates", 4, {})
    with pytest.raises(InternalError):
        reading("replicates", [], {})
    with pytest.raises(InternalError):
        reading("product", [object()], {(0, 1): 1.0})
