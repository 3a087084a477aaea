"""A new mechanism of one axis is one module and a place in the registry: no other file is touched.

The toy measures every leaf twice, with half of the budget each, and claims that it errs by nothing: so `auto` takes it
wherever it is offered. It is planned, published, answered and audited as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import InternalError
from dpsql.executor.engine import ReleaseEngine
from dpsql.matrices.leaves import IdentityVariance
from dpsql.mechanisms import axis
from dpsql.mechanisms.axis.strategy import (
    AxisProblem,
    AxisStrategy,
    Candidate,
    Frozen,
    NamedAxisMechanism,
    Proposal,
    Word,
    alone,
    check_sensitivity,
)
from dpsql.mechanisms.distribution import LAPLACE, LAWS, NoiseDistribution
from dpsql.mechanisms.integer_rows import SparseRows, rows_of_ones
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.noise import ExactNoise, ZeroNoise, os_entropy
from dpsql.release import open_release
from dpsql.tree import FloatArray, IntArray
from tests.strategies import by_word, column_bound, dense

CATALOG = """
dpsql: 1
name: toys
source: {kind: parquet, root: ROOT, tables: {sale: sale.parquet}}
ledger: ROOT/ledger
privacy: {lineage: toys, cap: 9, unit: row, epsilon: 1.0, DELTA}
tables:
  sale: {role: fact, columns: {day: {type: int, lower: 0, upper: 36}, town: {type: string, categories: [a, b, c]}}}
views:
  days: {of: sale, axes: [sale.day], measures: [count], share: 0.5}
  both: {of: sale, axes: [sale.day, sale.town], measures: [count], share: 0.5}
"""


@dataclass(frozen=True)
class Twice:
    """Every leaf in two rows, as `AxisStrategy` has it."""

    leaves: int
    law: NoiseDistribution
    total: int = 2
    kind: ClassVar[str] = "twice"
    entry_scale: ClassVar[int] = 1
    refinements: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_sensitivity(self, self.entries().column_bound(self.budget, self.law.norm))

    @property
    def budget(self) -> IntArray:
        return np.ones(2 * self.leaves, np.int64)

    def measure_columns(self, x: IntArray) -> IntArray:
        return np.concatenate([x, x])

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        return np.asarray((y[: self.leaves] + y[self.leaves :]) / 2)

    def variance(self) -> IdentityVariance:
        return IdentityVariance(self.leaves, self.total**2 / 2)

    def entries(self) -> SparseRows:
        leaf = np.tile(np.arange(self.leaves), 2)
        return rows_of_ones(self.leaves, leaf, leaf + 1)

    def for_products(self, crumb: float) -> AxisStrategy:
        return self

    def frozen(self) -> dict[str, Any]:
        return {"leaves": self.leaves, "norm": self.law.norm}

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        return cls(int(frozen["leaves"]), LAWS[frozen["norm"]])


class Toy:
    """What a module of `dpsql/mechanisms/axis` would hold."""

    NAMED: Mapping[str, NamedAxisMechanism] = {
        "twice": NamedAxisMechanism(
            lambda question, word: alone(Twice(question.leaves, question.law), word.name, question)
        )
    }

    def offers(self, question: AxisProblem) -> Iterator[Proposal]:
        if question.leaves < 30:
            yield Refusal("toy", "is for axes of 30 leaves or more")
        else:
            yield Offer(
                "toy", 0.0, lambda: Candidate(Twice(question.leaves, question.law), 0.0, "each leaf twice")
            )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy in the closed registry."""
    monkeypatch.setattr(axis, "MECHANISMS", (*axis.MECHANISMS, Toy()))
    monkeypatch.setattr(axis, "STRATEGIES", (*axis.STRATEGIES, Twice))


@pytest.mark.parametrize("law", LAWS.values())
def test_the_toy_answers_what_strategies_are_asked(law: NoiseDistribution) -> None:
    """As tests/mechanisms/test_strategy.py has it for the shipped ones."""
    strategy = Twice(7, law)
    assert column_bound(strategy) <= strategy.total**law.norm
    x = np.arange(7)[:, None]
    assert (strategy.measure_columns(x) == dense(strategy) @ x).all()
    assert (strategy.estimate_columns(strategy.measure_columns(x).astype(float)) == x).all()
    weighted = dense(strategy) / strategy.total
    assert np.linalg.inv(weighted.T @ weighted) == pytest.approx(strategy.variance().leaf * np.eye(7))
    with pytest.raises(InternalError, match="more sensitive than declared"):
        Twice(7, LAPLACE, total=1)


@pytest.mark.usefixtures("toy")
def test_it_is_offered_to_auto_had_by_name_and_restored() -> None:
    choice = by_word(37, "auto")
    assert isinstance(choice.strategy, Twice)
    assert choice.runners_up  # the shipped ones were searched and lost
    assert isinstance(by_word(37, Word("twice")).strategy, Twice)
    assert ("toy", "is for axes of 30 leaves or more") in [
        refusal[:2] for refusal in by_word(20, "auto").refused
    ]
    assert axis.thaw("twice", choice.strategy.frozen()) == choice.strategy


@pytest.mark.usefixtures("publishes")
@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("delta", ["delta: 0", "delta: 1e-6"])
def test_a_toy_strategy_is_planned_published_answered_and_audited(tmp_path: Path, delta: str) -> None:
    catalog, release = tmp_path / "c.yaml", tmp_path / "r.dpsql"
    catalog.write_text(CATALOG.replace("ROOT", str(tmp_path)).replace("DELTA", delta))
    rows = "SELECT (i * i) % 37 AS day, ['a', 'b', 'c'][1 + i % 3] AS town FROM range(9000) t(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{tmp_path}/sale.parquet'")
    sql = "SELECT COUNT(*) FROM sale WHERE day BETWEEN 3 AND 20 AND town <> 'b'"
    report = api.plan(catalog, [sql])
    assert {s.strategies[s.axes.index("sale.day")] for s in report.statistics} == {"each leaf twice"}

    def publish(path: Path, noise: Any) -> Path:
        return publish_release(load_catalog(catalog), path, noise=noise, key=b"k" * 32).path

    ((true,),) = (
        duckdb.connect().execute(f"SELECT COUNT(*) FROM ({rows}) WHERE {sql.split('WHERE')[1]}").fetchall()
    )
    exact = open_release(publish(tmp_path / "exact.dpsql", ZeroNoise()), insecure=True)
    assert ReleaseEngine(exact).query(sql).rows[0][0] == true
    exact.close()
    answer = dpsql.query(sql, release=publish(release, ExactNoise(os_entropy())))
    assert abs(answer.scalar() - true) < 5 * answer.stderr_rows[0][0]
    assert answer.stderr_rows[0][0] == pytest.approx(report.queries[0].columns[0].median, rel=1e-9)
    audited = api.audit(release, catalog=catalog, samples=0)
    assert audited.held, audited.text()
