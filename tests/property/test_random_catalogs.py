"""Random catalogs are published and asked what they offer: they answer or refuse, and no error lacks its reason."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dpsql.federation.session import open_session
from tests.property.catalogs import Published, faults, publish_random
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

STATEMENTS = 20
SEEDS = (0, 1, 2, 3, 4, 5)


@pytest.mark.parametrize("seed", by_default(SEEDS, 1))
def test_a_random_catalog_answers_or_refuses(tmp_path: Path, seed: int) -> None:
    published = publish_random(tmp_path, seed)
    assert isinstance(published, Published), published  # chosen so that all of these are published
    assert faults(published, seed, STATEMENTS) == []


def test_a_count_that_a_sums_plan_answers_has_that_plans_bound(tmp_path: Path) -> None:
    published = publish_random(tmp_path, 1050)  # two views: the one that is best for the sum counts rows too
    assert isinstance(published, Published), published
    with closing(open_session([published.release], insecure=True)) as opened:
        answer = opened.query('SELECT SUM("amount"), COUNT(*) FROM "random_star" WHERE "age" <= 33')
        (bounds,) = opened.query(
            'SELECT DP_MODEL_BOUND(SUM("amount")), DP_MODEL_BOUND(COUNT(*)), DP_MODEL_BOUND(SUM("amount") / COUNT(*)) '
            'FROM "random_star" WHERE "age" <= 33'
        ).rows
        ((quotient,),) = opened.query(
            'SELECT SUM("amount") / COUNT(*) FROM "random_star" WHERE "age" <= 33'
        ).rows
    (note,) = (note for note in answer.notes if "interpolating" in note)
    assert f"visit.amount by up to {bounds[0]:.4g}, count by up to {bounds[1]:.4g}" in note
    assert bounds[2] > 0
    assert quotient == pytest.approx(answer.rows[0][0] / answer.rows[0][1])
