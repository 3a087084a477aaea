"""A new mechanism of one axis is one module and a place in the registry: no other file is touched.

The toy measures every leaf twice, with half of the budget each, and claims that it errs by nothing: so `auto` takes it
wherever it is offered. It is planned, published, answered and audited as any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql import api
from dpsql.errors import InternalError
from dpsql.matrices.model import IdentityVariance
from dpsql.matrices.strategy import Strategy, rows_of_ones
from dpsql.mechanisms import axis
from dpsql.mechanisms.distribution import LAWS, NoiseDistribution
from dpsql.mechanisms.offers import (
    AxisProblem,
    Candidate,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Refusal,
    Word,
    alone,
)
from dpsql.noise import ExactNoise, ZeroNoise, os_entropy
from dpsql.tree import FloatArray
from tests.releases import published, write_catalog
from tests.strategies import TOYS, by_word, column_bound, dense
from tests.thinned import by_default

CATALOG = (
    TOYS
    + """
  sale: {role: fact, columns: {day: {type: int, lower: 0, upper: 36}, town: {type: string, categories: [a, b, c]}}}
views:
  days: {of: sale, axes: [sale.day], measures: [count], share: 0.5}
  both: {of: sale, axes: [sale.day, sale.town], measures: [count], share: 0.5}
"""
)


class TwiceVariance(IdentityVariance):
    """Least squares over two rows of each leaf."""

    def blue(self, y: FloatArray) -> FloatArray:
        return y[: self.n] + y[self.n :]


def twice(leaves: int, norm: int, total: int = 2) -> Strategy:
    """Every leaf in two rows."""
    leaf, budget = np.tile(np.arange(leaves), 2), np.ones(2 * leaves, np.int64)
    stored, rows = {"leaves": leaves, "norm": norm}, rows_of_ones(leaves, leaf, leaf + 1)
    return Strategy("twice", stored, rows, budget, total, norm, TwiceVariance(leaves, total**2 / 2))


class Toy:
    """What a module of `dpsql/mechanisms/axis` would hold."""

    NAMED: Mapping[str, NamedAxisMechanism] = {
        "twice": NamedAxisMechanism(
            lambda question, word: alone(twice(question.leaves, question.law.norm), word.name, question)
        )
    }

    def offers(self, question: AxisProblem) -> Iterator[Proposal]:
        if question.leaves < 30:
            yield Refusal("toy", "is for axes of 30 leaves or more")
        else:
            yield Offer(
                "toy",
                0.0,
                lambda: Candidate(twice(question.leaves, question.law.norm), 0.0, "each leaf twice"),
            )


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy in the closed registry."""
    monkeypatch.setattr(axis, "MECHANISMS", (*axis.MECHANISMS, Toy()))
    monkeypatch.setitem(axis.STRATEGIES, "twice", twice)


@pytest.mark.parametrize("law", LAWS.values())
def test_the_toy_answers_what_strategies_are_asked(law: NoiseDistribution) -> None:
    """As tests/mechanisms/test_strategy.py has it for the shipped ones."""
    strategy = twice(7, law.norm)
    assert column_bound(strategy) <= strategy.total**law.norm
    x = np.arange(7)[:, None]
    assert (strategy.rows.measure(x) == dense(strategy) @ x).all()
    assert (strategy.estimate(strategy.rows.measure(x).astype(float)) == x).all()
    weighted = dense(strategy) / strategy.total
    assert np.linalg.inv(weighted.T @ weighted) == pytest.approx(
        strategy.solver.columns()["leaf"] * np.eye(7)
    )
    with pytest.raises(InternalError, match="more sensitive than declared"):
        twice(7, 1, total=1)


@pytest.mark.usefixtures("toy")
def test_it_is_offered_to_auto_had_by_name_and_restored() -> None:
    choice = by_word(37, "auto")
    assert choice.strategy.kind == "twice"
    assert choice.runners_up  # the shipped ones were searched and lost
    assert by_word(37, Word("twice")).strategy.kind == "twice"
    assert ("toy", "is for axes of 30 leaves or more") in [
        refusal[:2] for refusal in by_word(20, "auto").refused
    ]
    assert axis.thaw("twice", choice.strategy.frozen()) == choice.strategy


@pytest.mark.usefixtures("publishes")
@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("delta", by_default(["delta: 0", "delta: 1e-6"], 1))
def test_a_toy_strategy_is_planned_published_answered_and_audited(tmp_path: Path, delta: str) -> None:
    rows = "SELECT (i * i) % 37 AS day, ['a', 'b', 'c'][1 + i % 3] AS town FROM range(9000) t(i)"
    catalog = write_catalog(tmp_path, CATALOG.replace("DELTA", delta), {"sale": rows})
    release = tmp_path / "r.dpsql"
    sql = "SELECT COUNT(*) FROM sale WHERE day BETWEEN 3 AND 20 AND town <> 'b'"
    report = api.plan(catalog, [sql])
    assert {s.strategies[s.axes.index("sale.day")] for s in report.statistics} == {"each leaf twice"}

    ((true,),) = (
        duckdb.connect().execute(f"SELECT COUNT(*) FROM ({rows}) WHERE {sql.split('WHERE')[1]}").fetchall()
    )
    exact = published(catalog, ZeroNoise(), "exact", key=b"k" * 32)
    assert exact.query(sql).rows[0][0] == true
    exact.release.close()
    published(catalog, ExactNoise(os_entropy()), key=b"k" * 32).release.close()
    answer = dpsql.query(sql, release=release)
    assert abs(answer.scalar() - true) < 5 * answer.stderr_rows[0][0]
    assert answer.stderr_rows[0][0] == pytest.approx(report.queries[0].columns[0].median, rel=1e-9)
    audited = api.audit(release, catalog=catalog, samples=0)
    assert audited.held, audited.text()
