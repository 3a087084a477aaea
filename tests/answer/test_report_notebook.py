"""Plots of answers: which picture is chosen, and that error bars are the intervals."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import dpsql
from dpsql.answer.output import plot
from tests.doors_release import build

pytestmark = pytest.mark.usefixtures("publishes")

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Connection]:
    with dpsql.connect(build(tmp_path_factory.mktemp("plots"))) as opened:
        yield opened


def test_error_bars_are_intervals(connection: dpsql.Connection) -> None:
    result = connection.execute("SELECT category, COUNT(*) AS n FROM shop GROUP BY category").result
    ax = plot(result)
    low, high = result.interval_rows(0.95)
    (bars,) = [c for c in ax.containers if type(c).__name__ == "ErrorbarContainer"]
    (lines,) = bars.lines[2]
    drawn = [end for segment in lines.get_segments() for end in (segment[0][1], segment[1][1])]
    assert drawn == pytest.approx([end for a, b in zip(low, high, strict=True) for end in (a[1], b[1])])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["cake", "coffee", "tea", "NULL"][
        : len(drawn)
    ]


def test_ordered_keys_are_steps_and_two_keys_a_heat_map(connection: dpsql.Connection) -> None:
    by_month = "SELECT MONTH(sold_on) AS m{}, COUNT(*) AS n FROM shop WHERE sold_on IS NOT NULL GROUP BY {}"
    assert not plot(connection.execute(by_month.format("", "1")).result).patches
    assert plot(connection.execute(by_month.format(", category", "1, 2")).result).images


def test_single_values_and_refusals(connection: dpsql.Connection) -> None:
    assert len(plot(connection.execute("SELECT COUNT(*) FROM sales").result).patches) == 1
    with pytest.raises(dpsql.InterfaceError, match="no noisy column"):
        plot(connection.execute("SELECT 1").result)
    with pytest.raises(dpsql.InterfaceError, match="no plot 'pie'"):
        plot(connection.execute("SELECT COUNT(*) FROM sales").result, "pie")


def test_notebooks_show_margins(connection: dpsql.Connection) -> None:
    html = connection.execute("SELECT COUNT(*) AS n FROM sales").result._repr_html_()
    assert "<th>n</th>" in html
    assert "±" in html
