"""Plans as values: what `explain --json` shows adds up to the answer, and says which nodes were measured."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpsql
from dpsql.errors import Error
from dpsql.executor import engine as answerer_module
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases, open_session
from dpsql.matrices.model import IdentityVariance
from dpsql.matrices.reading import MEASURED
from dpsql.matrices.tree import LevelVariance, TreeVariance
from dpsql.planner.answerability import ViewRow, list_views
from dpsql.release.request import current
from dpsql.tree import kary_tree
from tests.people_star import make_people
from tests.thinned import by_default


@pytest.mark.parametrize("what", ["plan", "decomposition"])
def test_how_it_was_answered_is_worked_out_within_a_request(
    what: str, answerer: ReleaseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are lazy: a million nodes are listed when somebody asks, under the limits of whoever asks."""
    found: list[bool] = []
    name = {"plan": "explain_relation", "decomposition": "decomposition"}[what]
    made = getattr(answerer_module, name)

    def watched(*args: Any) -> Any:
        found.append(current() is not None)
        return made(*args)

    monkeypatch.setattr(answerer_module, name, watched)
    assert getattr(answerer.query("SELECT COUNT(*) FROM shop"), what) and found == [True]


def random_statement(rng: random.Random) -> tuple[str, int]:
    """Counts, sums and averages over random ranges, sets and groups of one view of the fixture; and how many groups."""
    young, day, price = rng.randint(18, 38), rng.randint(1, 25), rng.randint(1, 20)
    conditions = {
        "age": [f"age BETWEEN {young} AND {rng.randint(young, 39)}", f"age <> {young}"],
        "region": ["region = 'north'", "region IN ('south', 'east')", "region IS NULL"],
        "category": ["department = 'food'", "category IN ('tea', 'jam')"],
        "sold_on": [f"sold_on < '2025-02-{day:02}'", f"sold_on >= '2025-01-{day:02}'"],
        "price": [f"price >= {price}", f"price < {price} + 3"],
    }
    views = [("age", "region", "category"), ("sold_on", "category")]
    columns = rng.choice(views)
    aggregates = ["COUNT(*) AS c", "SUM(amount) AS s", "AVG(amount) AS m"]
    aggregates.append(f"COUNT(*) FILTER (WHERE {rng.choice(conditions[columns[0]])}) AS f")
    picked = rng.sample(aggregates, rng.randint(1, 3))
    where = [rng.choice(conditions[column]) for column in columns if rng.random() < 0.5]
    text = f"FROM shop{' WHERE ' if where else ''}{' AND '.join(where)}"
    group = rng.choice(["", *columns])
    keys = {"sold_on": "date_trunc('month', sold_on)"}.get(group, group)
    text = f"SELECT {', '.join([keys] * bool(group) + picked)} {text}"
    return text + (f" GROUP BY {keys}" if group else ""), int(bool(group))


def term_value(term: dict[str, Any], row: int) -> float:
    """A term's value in a row, from its nodes."""
    return sum(
        summand["factor"] * node["weight"] * node["estimate"]
        for summand in term["sums"]
        for node in summand["nodes"]
        if node["row"] == row
    )


def redone(block: dict[str, Any], row: int) -> dict[str, float]:
    """Every value of a block in a row by its column, from its nodes alone."""
    values = {}
    for view in block["views"]:
        for value in view["values"]:
            above, *below = [
                side["constant"]
                + sum(weight * term_value(view["terms"][term], row) for term, weight in side["terms"])
                for side in value["sides"]
            ]
            quotient = above / (below[0] or math.nan) if below else above
            values |= dict.fromkeys(value["columns"], quotient)
    return values


@pytest.mark.parametrize("statements", by_default([20, 60], 1))
def test_nodes_add_up_to_the_answers_of_random_statements(answerer: ReleaseEngine, statements: int) -> None:
    rng, checked = random.Random(55), 0
    for _ in range(statements):
        text, groups = random_statement(rng)
        result = answerer.query(text)
        (block,) = json.loads(json.dumps(result.decomposition, allow_nan=False))
        rows = {tuple(keys.values()): i for i, keys in enumerate(block["rows"])}
        for row in result.rows:
            values = redone(block, rows[tuple(map(str, row[:groups]))] if groups else 0)
            for i, value in enumerate(row[groups:]):
                assert value is None or math.isclose(value, values[f"v{i}"], rel_tol=1e-9, abs_tol=1e-6), text
                checked += value is not None
    assert checked > 3 * statements


def test_nodes_are_said_to_be_measured_as_the_strategy_did() -> None:
    tree = kary_tree(9, 3)
    weight = np.where(tree.level == 1, 0.0, 1.0)
    by_node = TreeVariance(tree, weight)
    assert MEASURED["tree"](9, by_node.columns()) == {(0, 9), *((i, i + 1) for i in range(9))}
    by_level = LevelVariance(7, (2, 2, 2), (1, 0, 3, 4), np.ones(4))
    leaves = {(i, i + 1) for i in range(7)}
    assert MEASURED["levels"](7, by_level.columns()) == {(0, 7), (0, 2), (2, 4), (4, 6), (6, 7), *leaves}
    assert MEASURED["identity"](7, IdentityVariance(7, 1.0).columns()) == leaves


def test_words_name_nodes_noise_and_each_value_once(answerer: ReleaseEngine) -> None:
    text = "SELECT COUNT(*) AS n, COUNT(*) AS again, AVG(amount) FROM shop WHERE age BETWEEN 20 AND 31"
    plan = answerer.query(text).plan
    (axis,) = [line for line in plan if "axis customer.age" in line]
    assert " = [2, 3) at level 3 + [3, 6) at level 2 + " in axis
    assert axis.endswith("; 4 of 5 nodes were not measured: they are sums of others"), (
        "leaves alone have a budget"
    )
    counted = "count: half of the 95% interval / 1.96 is 18.9779; variance = 360 noise of count"
    assert [line.endswith(counted) for line in plan].count(True) == 1
    (average,) = [line for line in plan if "(sales.amount) / (count): half" in line]
    assert "noise of sales.amount + " in average and average.endswith("noise of count")


GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def described(answerer: ReleaseEngine, text: str) -> str:
    """The statement with its plan, or with its refusal, below it."""
    try:
        lines = answerer.explain(text).splitlines()
    except Error as error:
        lines = [f"{type(error).__name__}: {error}", *error.caret.splitlines()]
    return text.strip() + "\n" + "".join(f"-- {line}\n" for line in lines)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.sql")), ids=lambda path: path.stem)
def test_golden(path: Path, answerer: ReleaseEngine) -> None:
    written = path.read_text(encoding="utf-8")
    text = "\n".join(line for line in written.splitlines() if not line.startswith("-- "))
    found = described(answerer, text)
    if os.environ.get("DPSQL_GOLDEN") == "write":
        path.write_text(found, encoding="utf-8")
    assert found == written


def test_there_are_golden_files() -> None:
    assert len(list(GOLDEN.glob("*.sql"))) >= 10


def test_every_view_is_listed(opened: OpenReleases) -> None:
    shown = opened.query("show views;")
    assert shown.columns == ViewRow._fields
    assert sorted(row[0] for row in shown.rows) == ["demand", "people", "trend"]
    assert [ViewRow(*row) for row in sorted(shown.rows)] == sorted(list_views(opened.releases[0]))
    picked = opened.query("SELECT cells FROM information_schema.dp_views WHERE view_name = 'trend'")
    assert picked.rows == (
        (next(v.cells for v in list_views(opened.releases[0]) if v.view_name == "trend"),),
    )


def test_errors_are_those_of_answers(opened: OpenReleases) -> None:
    views = {view.view_name: view for view in list_views(opened.releases[0])}
    total = opened.query("SELECT DP_STDERR(COUNT(*)) FROM sales").scalar()
    assert total in (views["trend"].error_total, views["demand"].error_total)
    assert views["people"].error_total == pytest.approx(
        opened.query("SELECT DP_STDERR(COUNT(*)) FROM customer").scalar(), rel=1e-9
    )
    assert all(view.error_half > 0 for view in views.values())


def test_half_of_an_axis_is_its_middle(opened: OpenReleases) -> None:
    """The view of one axis: its middle half asked in SQL, leaf by leaf, has the error that is listed."""
    release = opened.releases[0]
    people = next(statistic for statistic in release.statistics if statistic.view == "people")
    leaves = release.axes[people.axes[0]].leaves
    middle = range(leaves // 4, leaves - leaves // 4)
    ages = release.connection.cursor().execute(
        f"SELECT MIN(age), MAX(age) FROM axis_{people.axes[0]} WHERE leaf BETWEEN {middle[0]} AND {middle[-1]}"
    )
    low, high = ages.fetchall()[0]
    answer = opened.query(f"SELECT DP_STDERR(COUNT(*)) FROM customer WHERE age BETWEEN {low} AND {high}")
    listed = next(view.error_half for view in list_views(release) if view.view_name == "people")
    assert listed == pytest.approx(answer.scalar(), rel=1e-9)


@pytest.mark.usefixtures("publishes")
def test_errors_of_scaled_views_have_the_scale_in_them(tmp_path: Path) -> None:
    """Under `max_ids: auto` the noise of a total is the scale's alone: without it the list would say 0."""
    catalog = make_people(tmp_path, customers=1200, bound="auto", privacy="epsilon: 1, delta: 1e-6")
    dpsql.publish(catalog, tmp_path / "people.dpsql")
    opened = open_session([tmp_path / "people.dpsql"])
    listed = {view.view_name: view for view in list_views(opened.releases[0])}
    total = opened.query(
        "SELECT COUNT(*), DP_STDERR(COUNT(*)), DP_STDERR(COUNT(*), 'scale') FROM sales"
    ).rows[0]
    assert total[1] >= total[2] > 0.01 * abs(total[0])  # the interval has the tail too
    of_sales = [view for view in listed.values() if view.table_name == "sales" and "count" in view.measures]
    assert len(of_sales) == 4
    for view in of_sales:
        assert view.error_total == pytest.approx(total[1], rel=1e-2), view.view_name
    assert all(view.error_half > 0 for view in of_sales)
    opened.close()
