"""Three lemmas of docs/privacy.md in the integers and the SQL that ship, for everything up to a stated size.

| lemma | every case up to |
|---|---|
| exactly min(n, tau) rows of a unit are kept | n = 96, tau = 97, all offsets |
| rows that hold one person spend one budget | 16 leaves, every set of them |
| W^2 N <= 2^40 K^2, and W is the largest | N, K^2 = 1,024; square roots of all whole numbers to 2^40 |
"""

from __future__ import annotations

from itertools import pairwise

import duckdb
import numpy as np
import pytest

from dpsql.contributions.statements import LARGEST_NORM
from dpsql.contributions.statements import _root as root_sql
from dpsql.engines.counting import UNIT, is_kept
from dpsql.engines.dialect import DUCK
from dpsql.matrices.distinct import gap_total, gap_weights, gaps_of

pytestmark = pytest.mark.slow
ROWS, LEAVES, NORMS = 96, 16, 1024


def wrong_counts(tau: int, kept: str) -> int:
    """Units of up to `ROWS` rows and offsets where a condition does not keep min(n, tau) rows."""
    numbers = (
        f"SELECT n, r, i FROM range(1, {ROWS + 1}) a(n), range(0, {ROWS}) b(r), range(1, {ROWS + 1}) c(i)"
    )
    counted = (
        f"SELECT n, count(*) FILTER ({kept}) AS rows FROM ({numbers}) WHERE r < n AND i <= n GROUP BY n, r"
    )
    return scalar(f"SELECT count(*) FROM ({counted}) WHERE rows <> least(n, {tau})")


def scalar(query: str) -> int:
    """One number, by a connection that ends with it: an unread row would keep a shared one busy."""
    with duckdb.connect() as db:
        return db.execute(query).fetchone()[0]


def test_every_unit_keeps_exactly_tau_rows() -> None:
    assert [tau for tau in range(1, ROWS + 2) if wrong_counts(tau, is_kept(tau, "r", DUCK))] == []


def test_a_remainder_too_many_is_found() -> None:
    assert wrong_counts(7, "n <= 7 OR (i * 7 + r) % n <= 7") > 0


@pytest.mark.parametrize("n", range(11, LEAVES + 1))
def test_every_set_of_leaves_spends_the_same(n: int) -> None:
    weights = gap_weights(n)
    table = np.zeros((n + 2, n + 2), np.int64)
    table[tuple(ends + 1 for ends in gaps_of(n))] = weights[1:]
    assert all(
        weights[0] + sum(int(table[left, right]) for left, right in pairwise([0, *leaves, n + 1]))
        == gap_total(n)
        for leaves in ([i + 1 for i in range(n) if bits >> i & 1] for bits in range(1, 1 << n))
    )


def test_a_weight_is_the_largest_that_the_clip_allows() -> None:
    """Over every norm and clip of the grid, and norms beside the largest that is weighed at all."""
    norms = f"(SELECT unnest(range(0, {NORMS + 1}))::HUGEINT AS norm)"
    with duckdb.connect() as db:
        for clip in range(1, NORMS + 1):
            weighed = f"SELECT norm, {root_sql(clip, DUCK)}::HUGEINT AS w FROM {norms}"
            wrong = db.execute(
                f"SELECT count(*) FROM ({weighed}) WHERE w * w * norm > {UNIT**2 * clip} OR (norm = 0) <> (w = 0) OR "
                f"(norm > 0 AND w < {UNIT} AND (w + 1) * (w + 1) * norm <= {UNIT**2 * clip})"
            ).fetchone()[0]
            assert wrong == 0, clip
        for norm in (LARGEST_NORM - 1, LARGEST_NORM, LARGEST_NORM + 1):
            for clip in (1, LARGEST_NORM - 1, LARGEST_NORM, LARGEST_NORM + 1):
                w = db.execute(
                    f"SELECT {root_sql(clip, DUCK)} FROM (SELECT {norm}::HUGEINT AS norm)"
                ).fetchone()[0]
                assert w**2 * norm <= UNIT**2 * clip


def test_square_roots_to_2_40_are_whole() -> None:
    """sqrt is rounded correctly and never falls, so right at the ends of each step is right within it."""
    steps = f"(SELECT x, unnest([x * x, x * x + 2 * x]) AS square FROM range(1, {1 << 20}) t(x))"
    wrong = f"SELECT count(*) FROM {steps} WHERE CAST(floor(sqrt(CAST(square AS DOUBLE))) AS BIGINT) <> x"
    assert scalar(wrong) == 0
    assert scalar(wrong.replace("x * x + 2 * x]", "x * x + 2 * x + 1]")) == (1 << 23) - 1
