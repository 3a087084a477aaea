"""A new strategy of time is one constructor and a place in the registry: no other file is touched.

The toy publishes twice each batch's count at half the budget, which is as good as the count at all of it. It claims to
err by nothing, so `auto` takes it. It ends after five batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from dpsql import api
from dpsql.curator.audit import audit_release
from dpsql.errors import BatchOrderError
from dpsql.matrices.model import IdentityVariance
from dpsql.mechanisms import continual
from dpsql.mechanisms.continual.time_tree import (
    Choose,
    StreamProblem,
    TimeCandidate,
    TimeOffer,
    TimeStrategy,
    check_rows,
    own_node,
)
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from tests.releases import seeded
from tests.stream_shop import CATALOG, StreamShop, make_stream_shop

pytestmark = pytest.mark.usefixtures("publishes")

DAYS, WEIGHT = 3, 2
SHARE = Fraction(1, WEIGHT)
NAME = "a toy, batch by batch"


def doubled(law: NoiseDistribution, horizon: int = 5) -> TimeStrategy:
    """Each batch twice, at half the budget."""
    return TimeStrategy(
        "doubled", {"horizon": horizon}, NAME, law, (SHARE, SHARE),
        lambda batch: (own_node(batch, 0, batch, batch + 1, SHARE, np.array([WEIGHT], dtype=np.int64)),),
        lambda batches: (batches,),
        lambda batches, published: check_rows(published, batches) / WEIGHT,
        lambda batches: IdentityVariance(batches, float(1 / SHARE**2) / WEIGHT**2),
        Fraction, horizon,
    )  # fmt: skip


class Toy:
    """What a module of the registry holds."""

    NAMED: ClassVar[dict[str, Choose]] = {}

    @staticmethod
    def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
        if question.law != LAPLACE:
            yield Refusal("doubled", "it needs Laplace noise")
            return
        yield TimeOffer("doubled", 0.0, lambda: TimeCandidate(doubled(question.law), 0.0, NAME))


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy in the closed registry."""
    monkeypatch.setattr(continual, "MECHANISMS", (*continual.MECHANISMS, Toy))
    monkeypatch.setitem(continual.STRATEGIES, "doubled", doubled)


@pytest.fixture
def shop(tmp_path: Path) -> StreamShop:
    """A shop whose catalog says `auto`."""
    return make_stream_shop(tmp_path, customers=200, text=CATALOG.replace("horizon: 365", "horizon: 7"))


def test_the_toy_walks_from_plan_to_audit(shop: StreamShop) -> None:
    question = "SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-01-02'"
    planned = api.plan(shop.catalog, [question])
    assert {statistic.strategies[0] for statistic in planned.statistics} == {NAME}
    days = next(each for each in planned.not_taken if each.taken == NAME)
    assert "spectral" in [refusal.name for refusal in days.refused]
    for day in range(DAYS):
        assert shop.append(day).added
    answer, raw = shop.opened().query(question), shop.raw(DAYS)
    assert [tuple(row) for row in answer.rows] == raw.execute(question).fetchall()
    assert answer.stderr_rows[0][0] > 0
    report = audit_release(shop.directory, seeded(1), catalog=None, samples=0)
    assert {check.what for check in report.checks if not check.held} == {"noise from the system's entropy"}
    for day in range(DAYS, 5):
        shop.append(day)
    with pytest.raises(BatchOrderError, match="planned for"):
        shop.append(5)


def test_noise_has_the_variance_that_the_toy_says(tmp_path: Path) -> None:
    text = CATALOG[: CATALOG.index("views:")].replace("horizon: 365", "horizon: 5")
    text += "views: {days: {of: sales, axes: [sales.sold_on, customer.age], measures: [count]}}\n"
    shop = make_stream_shop(tmp_path, customers=20, text=text, noise=seeded(5), epsilon="4")
    for day in range(5):
        shop.append(day)
    question = "SELECT sold_on, age, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY ALL"
    answer = shop.opened().query(question)
    truth = {row[:-1]: row[-1] for row in shop.raw(5).execute(question).fetchall()}
    error = np.array([row[-1] - truth.get(tuple(row[:-1]), 0) for row in answer.rows])
    said = np.array([row[-1] for row in answer.stderr_rows])
    assert error.size == 5 * 72 and abs(float((error / said).std()) - 1) < 0.15  # its own chance: .05
