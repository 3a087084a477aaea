"""Counts along an amount's own axis under `max_ids: auto`, where whoever spends much weighs less."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.release import Release
from tests.releases import published, seeded
from tests.spenders_star import EDGES, counted, spenders, write_star
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

Star = tuple[np.ndarray, np.ndarray]


def released(folder: Path, star: Star, epsilon: str, delta: str) -> list[ReleaseEngine]:
    """Three draws: one of dozens of 95% intervals may miss."""
    catalog = write_star(folder, *star, epsilon=epsilon, delta=delta)
    return [published(catalog, seeded(seed), f"{seed}") for seed in range(3)]


def holds(answers: ReleaseEngine, value: str, where: str, truth: float) -> bool:
    low, high = answers.query(f"SELECT {value} FROM sales WHERE {where}").interval_rows(0.95)
    return bool(low[0][0] <= truth <= high[0][0])


def assert_covered(releases: list[ReleaseEngine], star: Star) -> None:
    """Every bin of 50 rows, everything from a bin on, and everything up to one: each in two draws, 95% of all."""
    truth, inside = counted(*star), []
    for i, (low, high) in enumerate(pairwise(EDGES)):
        for where, rows in (
            (f"amount >= {low} AND amount < {high}", truth[i]),
            (f"amount >= {low}", sum(truth[i:])),
            (f"amount < {high}", sum(truth[: i + 1])),
        ):
            if rows >= 50:
                inside.append([holds(answers, "COUNT(*)", where, rows) for answers in releases])
                assert sum(inside[-1]) >= 2, where
    assert np.mean(inside) >= 0.95


@pytest.mark.parametrize("delta", by_default(["1e-6", "0"], 1))
def test_dear_rows_of_a_few_are_covered(tmp_path: Path, delta: str) -> None:
    """Without the bound: 61 in [39, 82] for 595 rows above 500."""
    star = spenders()
    releases = released(tmp_path, star, "20", delta)
    assert_covered(releases, star)
    amount = np.clip(star[1], 0, 1000)
    dear, share = amount[amount >= 500], "COUNT(*) FILTER (WHERE amount >= 500) * 1.0 / COUNT(*)"
    for answers in releases:
        assert holds(answers, "SUM(amount)", "amount >= 500", dear.sum())
        assert holds(answers, "AVG(amount)", "amount >= 500", dear.mean())
        assert holds(answers, share, "1 = 1", np.mean(amount >= 500))


def test_amounts_without_an_end_leave_all_rows_that_weights_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any of them may be dear then."""
    star = spenders()
    answers = published(write_star(tmp_path, *star, epsilon="20"), seeded(0))
    known = answers.release.scales["sales"]
    rows, amounts = known.measure(""), known.measure("sales.amount")
    unknown = replace(known, measures=(rows, replace(amounts, error=amounts.error._replace(up=None))))
    monkeypatch.setattr(Release, "scales", property(lambda release: {"sales": unknown}))
    result = answers.query("SELECT COUNT(*) FROM sales WHERE amount >= 500")
    ((low,),), ((high,),) = result.interval_rows(0.95)
    seen, hidden = result.rows[0][0], known.rows * (1 - 1 / rows.factor)
    assert high - seen >= hidden + (seen - low) / 2 and high >= np.sum(star[1] >= 500)


def without_spenders() -> Star:
    rng = np.random.default_rng(3)
    owned = np.minimum(rng.lognormal(1.3, 1.0, 4000).astype(int) + 1, 200)
    owner = np.repeat(np.arange(4000), owned)
    return owner, rng.gamma(1.5, 40, len(owner)).astype(int)


def of_tastes() -> Star:
    """Whoever buys dear things buys only such, and no more of them than others."""
    rng = np.random.default_rng(8)
    owner = np.repeat(np.arange(3000), rng.poisson(5, 3000) + 1)
    return owner, np.exp(rng.normal(rng.normal(2.5, 1.4, 3000)[owner], 0.4)).astype(int)


def orders() -> Star:
    """Online Retail: wholesale customers place dear orders."""
    if "DPSQL_DATA" not in os.environ:
        pytest.skip("DPSQL_DATA names no folder")
    file = f"{os.environ['DPSQL_DATA']}/online-retail/invoice_line.parquet"
    with duckdb.connect() as db:
        columns = db.execute(
            "SELECT CAST(CustomerID AS INT) AS id, least(1000, sum(Quantity * UnitPrice) / 5)::INT AS amount FROM "
            f"'{file}' WHERE CustomerID IS NOT NULL AND Quantity > 0 GROUP BY CustomerID, InvoiceNo ORDER BY ALL"
        ).fetchnumpy()
    return np.asarray(columns["id"]), np.asarray(columns["amount"])


@pytest.mark.slow
@pytest.mark.parametrize("star", [without_spenders, of_tastes, orders])
def test_stars_that_were_not_made_for_it_are_covered(tmp_path: Path, star: Callable[[], Star]) -> None:
    rows = star()
    assert_covered(released(tmp_path, rows, "4" if star is without_spenders else "20", "1e-6"), rows)
