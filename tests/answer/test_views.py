"""`SHOW VIEWS`: what can be asked, with the errors that answers then have."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql.federation.session import OpenReleases, open_session
from dpsql.planner.answerability import ViewRow, list_views
from tests.people_star import make_people


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
