"""A new measurement of families is one module and a place in the registry: no other file is touched.

The toy draws every view twice, with half of its budget each, and claims that it errs by nothing: so `auto` takes it.
It is planned, published, answered and audited as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql import api
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.reconcile import Subset
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms import designs
from dpsql.mechanisms.designs.measurement import (
    AxisWorkload,
    ChargeLine,
    DrawnMember,
    DrawParameters,
    MeasuredAxis,
    MeasurementFacts,
    StatisticShare,
    estimated,
)
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.product import offers as product_offers
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyCandidate,
    FamilyDesign,
    NamedFamily,
    Proposal,
)
from dpsql.mechanisms.distribution import LAPLACE, NoisyRows, NoisyView
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import ExactNoise, Noise, ZeroNoise, os_entropy
from dpsql.release import open_release
from dpsql.tree import FloatArray, IntArray
from tests.releases import published, write_catalog
from tests.strategies import TOYS, by_word
from tests.thinned import by_default

CATALOG = (
    TOYS
    + """
  sale: {role: fact, columns: {
    day: {type: int, lower: 0, upper: 30}, town: {type: string, categories: [a, b, c]},
    paid: {type: int, lower: 0, upper: 9, measure: true}}}
views:
  days: {of: sale, axes: [sale.day], measures: [count], share: 0.5}
  both: {of: sale, axes: [sale.day, sale.town], measures: [count, sale.paid], share: 0.5}
"""
)


def half(terms: DrawParameters) -> DrawParameters:
    """What one of the two draws is made with."""
    return terms._replace(spend=terms.spend / 2)


@dataclass(frozen=True)
class Drawn:
    """Two draws of a view, one after the other."""

    value: IntArray
    budget: IntArray
    variance_at_unit_budget: float


@dataclass(frozen=True)
class TwoDraws:
    """Products of axes, drawn twice. `Measurement` and `LinearRows` as in any module of `dpsql/mechanisms/designs`."""

    @property
    def facts(self) -> MeasurementFacts:
        parts = (ChargeLine("first", Fraction(1, 2)), ChargeLine("second", Fraction(1, 2)))
        return MeasurementFacts(parts, ProductReading.name, "twice", linear=self)

    def words(self, strategies: Sequence[str]) -> str:
        return f"twice {PRODUCT.words(strategies)}"

    def known(self, strategies: Sequence[Strategy]) -> int:
        return PRODUCT.known(strategies)

    def row_count(self, strategies: Sequence[Strategy]) -> int:
        return 2 * PRODUCT.row_count(strategies)

    def variance_at_unit_budget(self, terms: DrawParameters) -> float:
        return PRODUCT.variance_at_unit_budget(half(terms)) / 2

    def mean_variance(
        self, axes: Subset, unit: float, family: Sequence[StatisticShare], asked: Mapping[int, AxisWorkload]
    ) -> float:
        return PRODUCT.mean_variance(axes, unit, family, asked)

    def draw(self, cells: IntArray, terms: DrawParameters, noise: Noise) -> NoisyRows:
        looks = [PRODUCT.draw(cells, half(terms), noise) for _ in range(2)]
        value, budget = (
            np.concatenate([getattr(look, name) for look in looks]) for name in ("value", "budget")
        )
        return Drawn(value, budget, self.variance_at_unit_budget(terms))

    def components(
        self, family: Sequence[StatisticShare], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        return PRODUCT.components(family, totals)

    def estimate(self, family: Sequence[DrawnMember], axes: Mapping[int, MeasuredAxis]) -> list[Estimated]:
        leaves = [self.leaf_estimates(m.view, [axes[axis].strategy for axis in m.axes]) for m in family]
        return estimated(self, family, leaves, axes, agree=True)

    def shape(self, strategies: Sequence[Strategy]) -> tuple[int, ...]:
        first, *others = PRODUCT.shape(strategies)
        return (2 * first, *others)

    def budgets(self, terms: DrawParameters) -> IntArray:
        return np.concatenate([PRODUCT.budgets(half(terms))] * 2)

    def largest_column(self, budget: IntArray, terms: DrawParameters) -> int:
        if terms.law != LAPLACE:  # noise is scaled to the totals, see `law.Gaussian.largest_column`
            return PRODUCT.largest_column(budget, terms)
        return sum(PRODUCT.largest_column(each, half(terms)) for each in np.split(budget, 2))

    def column_cap(self, terms: DrawParameters) -> int:
        return PRODUCT.column_cap(terms)

    def measure(self, cells: IntArray, strategies: Sequence[Strategy]) -> IntArray:
        return np.concatenate([PRODUCT.measure(cells, strategies)] * 2)

    def weights(self, strategies: Sequence[Strategy]) -> FloatArray:
        return np.concatenate([PRODUCT.weights(strategies)] * 2) / np.sqrt(2)

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[Strategy]) -> FloatArray:
        looks = [
            PRODUCT.leaf_estimates(NoisyView(value, budget, 2 * view.variance_at_unit_budget, 1), strategies)
            for value, budget in zip(np.split(view.value, 2), np.split(view.budget, 2), strict=True)
        ]
        return np.asarray(np.mean(looks, axis=0), np.float64)


class Toy:
    """What a module of `dpsql/mechanisms/designs` would hold."""

    NAMED: Mapping[str, NamedFamily] = {}

    def offers(self, question: DesignProblem) -> Iterator[Proposal]:
        if question.people:
            yield Refusal("toy", "needs a declared max_ids")
            return

        def make() -> FamilyCandidate:
            offer, *_ = product_offers(question)
            made = offer.make()  # the same strategies of each axis
            return FamilyCandidate("twice", FamilyDesign(TwoDraws(), made.strategy.views), lambda: 0.0)

        yield Offer("toy", 0.0, make)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy in the closed registry."""
    monkeypatch.setattr(designs, "MECHANISMS", (*designs.MECHANISMS, Toy()))


@pytest.mark.usefixtures("publishes")
@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("delta", by_default(["delta: 0", "delta: 1e-6"], 1))
def test_a_toy_measurement_is_planned_published_answered_and_audited(tmp_path: Path, delta: str) -> None:
    rows = (
        "SELECT (i * i) % 31 AS day, ['a', 'b', 'c'][1 + i % 3] AS town, i % 10 AS paid FROM range(9000) t(i)"
    )
    catalog = write_catalog(tmp_path, CATALOG.replace("DELTA", delta), {"sale": rows})
    where = "day BETWEEN 3 AND 20 AND town <> 'b'"
    sql = f"SELECT COUNT(*), SUM(paid) FROM sale WHERE {where}"
    report = api.plan(catalog, [sql])
    family = report.not_taken[0]
    assert (family.what, family.taken, family.expected_error) == ("days, both", "twice", 0.0)
    assert "axes one by one" in dict(family.lost)

    (true,) = duckdb.connect().execute(f"SELECT COUNT(*), SUM(paid) FROM ({rows}) WHERE {where}").fetchall()
    engine = published(catalog, ZeroNoise(), "exact", key=b"k" * 32)
    exact = engine.release
    assert [float(v) for v in engine.query(sql).rows[0]] == [float(v) for v in true]
    assert exact.statistics[0].mechanism.split(": ")[1].startswith("twice ")
    exact.close()
    release = tmp_path / "r.dpsql"
    published(catalog, ExactNoise(os_entropy()), key=b"k" * 32).release.close()
    answer = dpsql.query(sql, release=release)
    for found, error, wanted, column in zip(
        answer.rows[0], answer.stderr_rows[0], true, report.queries[0].columns, strict=True
    ):
        assert abs(float(found) - float(wanted)) < 5 * error
        assert error == pytest.approx(column.median, rel=1e-9)
    audited = api.audit(release, catalog=catalog, samples=0)
    assert audited.held, audited.text()
    assert {check.what for check in audited.checks} >= {
        "no path of row budgets spends more than its view's part"
    }
    lines = [spend.purpose for spend in open_release(release).meta.spends]
    assert "view days: count, second" in lines


def test_two_draws_of_half_the_budget_err_as_said() -> None:
    """400 draws of one axis: the mean squared error of a range over its variance."""
    strategy, cells = by_word(12, "identity").strategy, np.arange(12)
    terms, noise = DrawParameters([strategy], LAPLACE, Fraction(1), 1), ExactNoise(os_entropy())
    toy, errors = TwoDraws(), []
    for _ in range(400):
        drawn = toy.draw(cells, terms, noise)
        errors.append(float((toy.leaf_estimates(drawn, [strategy]) - cells)[2:7].sum()))
    predicted = toy.variance_at_unit_budget(terms) * strategy.solver.ranges([2], [7])[0]
    assert 0.75 < np.mean(np.square(errors)) / predicted < 1.3
