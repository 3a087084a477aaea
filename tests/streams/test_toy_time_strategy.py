"""A new strategy of time is one class and a place in the registry: no other file is touched.

The toy publishes twice each batch's count at half the budget, which is as good as the count at all of it. It claims to
err by nothing, so `auto` takes it. It ends after five batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from dpsql import api
from dpsql.curator.audit import audit_release
from dpsql.errors import BatchOrderError
from dpsql.matrices import AxisVariance
from dpsql.matrices.leaves import IdentityVariance
from dpsql.mechanisms import continual
from dpsql.mechanisms.continual.time_strategy import (
    Emission,
    Frozen,
    NodeRead,
    StreamProblem,
    TimeCandidate,
    TimeOffer,
    check_rows,
    refuse_past,
)
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.tree import FloatArray
from tests.stream_shop import CATALOG, StreamShop, make_stream_shop

pytestmark = pytest.mark.usefixtures("publishes")

DAYS, WEIGHT = 3, 2
SHARE = Fraction(1, WEIGHT)


@dataclass(frozen=True)
class Doubled:
    """Each batch twice, at half the budget."""

    kind: ClassVar[str] = "doubled"
    ahead: ClassVar[None] = None
    name: ClassVar[str] = "a toy, batch by batch"
    law: NoiseDistribution
    horizon: int = 5

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        read = NodeRead(batch, 1, SHARE, batch + 2)
        return (Emission(0, batch, batch + 1, (read,), np.array([WEIGHT], dtype=np.int64)),)

    def needed(self, batches: int) -> tuple[int, ...]:
        return (batches,)

    def shares(self) -> tuple[Fraction, Fraction]:
        return SHARE, SHARE

    def price(self, batches: int) -> Fraction:
        return Fraction(batches)

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        return check_rows(published, batches) / WEIGHT

    def variance(self, batches: int) -> AxisVariance:
        return IdentityVariance(batches, float(1 / SHARE**2) / WEIGHT**2)

    def running_totals(self, batches: int) -> None:
        return None

    def frozen(self) -> dict[str, Any]:
        return {"horizon": self.horizon}


class Toy:
    """What a module of the registry holds."""

    NAMED: ClassVar[dict[str, Any]] = {}
    KINDS: ClassVar[dict[str, Any]] = {}

    @staticmethod
    def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
        if question.law != LAPLACE:
            yield Refusal("doubled", "it needs Laplace noise")
            return
        yield TimeOffer("doubled", 0.0, lambda: TimeCandidate(Doubled(question.law), 0.0, Doubled.name))


def thawed(law: NoiseDistribution, frozen: Frozen) -> Doubled:
    return Doubled(law, int(frozen["horizon"]))


Toy.KINDS["doubled"] = thawed


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamShop:
    """A shop whose catalog says `auto`, with the toy in the closed registry."""
    monkeypatch.setattr(continual, "MECHANISMS", (*continual.MECHANISMS, Toy))
    return make_stream_shop(tmp_path, customers=200, text=CATALOG.replace("horizon: 365", "horizon: 7"))


def test_the_toy_walks_from_plan_to_audit(shop: StreamShop) -> None:
    question = "SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-01-02'"
    planned = api.plan(shop.catalog, [question])
    assert {statistic.strategies[0] for statistic in planned.statistics} == {Doubled.name}
    days = next(each for each in planned.not_taken if each.taken == Doubled.name)
    assert "spectral" in [refusal.name for refusal in days.refused]
    for day in range(DAYS):
        assert shop.append(day).added
    answer, raw = shop.opened().query(question), shop.raw(DAYS)
    assert [tuple(row) for row in answer.rows] == raw.execute(question).fetchall()
    assert answer.stderr_rows[0][0] > 0
    report = audit_release(shop.directory, ExactNoise(insecure_test_entropy(1)), catalog=None, samples=0)
    assert {check.what for check in report.checks if not check.held} == {"noise from the system's entropy"}
    for day in range(DAYS, 5):
        shop.append(day)
    with pytest.raises(BatchOrderError, match="planned for"):
        shop.append(5)


def test_noise_has_the_variance_that_the_toy_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continual, "MECHANISMS", (*continual.MECHANISMS, Toy))
    text = CATALOG[: CATALOG.index("views:")].replace("horizon: 365", "horizon: 5")
    text += "views: {days: {of: sales, axes: [sales.sold_on, customer.age], measures: [count]}}\n"
    shop = make_stream_shop(
        tmp_path, customers=20, text=text, noise=ExactNoise(insecure_test_entropy(5)), epsilon="4"
    )
    for day in range(5):
        shop.append(day)
    question = "SELECT sold_on, age, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY ALL"
    answer = shop.opened().query(question)
    truth = {row[:-1]: row[-1] for row in shop.raw(5).execute(question).fetchall()}
    error = np.array([row[-1] - truth.get(tuple(row[:-1]), 0) for row in answer.rows])
    said = np.array([row[-1] for row in answer.stderr_rows])
    assert error.size == 5 * 72 and abs(float((error / said).std()) - 1) < 0.15  # its own chance: .05
