"""What cutting a bin may add to an answer: the bound holds for the worst data, is reached by it, and is shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import dpsql
from dpsql import api
from dpsql.catalog.base import COUNT, MeasureName
from dpsql.errors import InterfaceError, NoViewError, PartialBinError
from dpsql.executor.engine import ReleaseEngine
from dpsql.interfaces.cli.plan import plan_text
from dpsql.intervals.partial_bins import PartialBin
from dpsql.intervals.reads import CutMass, average_ends, average_of, quotient_ends
from dpsql.planner.block import Linear, Ratio
from dpsql.planner.schema import Expression, Predicate, Term
from dpsql.results.render import render
from tests.answer.test_statements import star
from tests.releases import plain_tables, published, seeded, write_catalog
from tests.thinned import by_default
from tests.userlevel_star import uneven_rows, write_star

pytestmark = pytest.mark.usefixtures("publishes")

EVEN = "i % 100 AS day FROM range(300)"
DAYS = {
    "early": "i // 30 * 10 AS day FROM range(300)",
    "late": "i // 30 * 10 + 9 AS day FROM range(300)",
    "even": EVEN,
}
"""All rows of a bin on its first day, on its last, or anywhere."""
FORMS = {
    "COUNT(*)": "count",
    "SUM(paid)": "paid",
    "SUM(change)": "change",
    "AVG(paid)": "avg",
    "AVG(change)": "avgc",
}


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ReleaseEngine]:
    """Releases without noise, by where a bin's rows lie."""
    folder = tmp_path_factory.mktemp("cuts")
    stars = {name: star("even", folder / name, changes={EVEN: rows}) for name, rows in DAYS.items()}
    return {
        name: ReleaseEngine(each.release, on_partial_bin="interpolate") for name, (each, _) in stars.items()
    }


@pytest.mark.kernel
@pytest.mark.parametrize("where", [
    "day < 14", "day BETWEEN 3 AND 47", "day = 20", "day % 7 = 0", "NOT day BETWEEN 3 AND 47",
    "day < 14 AND shop > 2", "day < 14 OR shop < 2",
])  # fmt: skip
@pytest.mark.parametrize("name", by_default(["early", "late", "even"], 2))
def test_answers_are_within_their_bound(exact: dict[str, ReleaseEngine], name: str, where: str) -> None:
    answerer = exact[name]
    text = f"SELECT {', '.join(FORMS)} FROM sales WHERE {where}"
    found = answerer.query(text)
    with plain_tables(answerer.release.path.parent) as raw:
        (truth,) = raw.execute(text).fetchall()
    for what, value, bound, true in zip(FORMS, found.rows[0], found.model_bound[0], truth, strict=True):
        assert bound is not None
        assert bound > 0
        if value is not None and true is not None:
            assert abs(value - float(true)) <= bound + 1e-5, what
    low, high = found.interval_rows()
    for what, a, b, true in zip(FORMS, low[0], high[0], truth, strict=True):
        if true is not None:
            assert a is None or a <= float(true) + 1e-5, what
            assert b is None or float(true) - 1e-5 <= b, what


@pytest.mark.kernel
def test_the_worst_data_reach_the_bound(exact: dict[str, ReleaseEngine]) -> None:
    """All rows of the bin lie on its first day, of which a tenth is taken: 27 of 30 are missed."""
    found = exact["early"].query("SELECT COUNT(*) FROM sales WHERE day = 20")
    assert found.rows == ((3.0,),)
    assert found.model_bound == ((27.0,),)


def test_sums_of_one_sign_are_bounded_by_themselves(exact: dict[str, ReleaseEngine]) -> None:
    """A sum of values of 0 to 40 can be off by part of itself, far less than its rows times 40."""
    answerer = exact["even"]
    whole = answerer.query("SELECT COUNT(*), SUM(paid) FROM sales WHERE day BETWEEN 20 AND 29").rows[0]
    half = answerer.query("SELECT COUNT(*), SUM(paid), SUM(change) FROM sales WHERE day BETWEEN 20 AND 24")
    assert half.model_bound[0][0] == pytest.approx(whole[0] / 2)
    assert half.model_bound[0][1] == pytest.approx(whole[1] / 2)
    total = answerer.query("SELECT SUM(change) FROM sales WHERE day BETWEEN 20 AND 29").rows[0][0]
    largest = (total + 20 * whole[0]) / 60  # rows of 40, where all others have -20
    assert half.model_bound[0][2] == pytest.approx(
        max(40 * largest, 20 * (whole[0] - largest) + total) - total / 2
    )


@pytest.mark.kernel
def test_averages_have_a_bound_wherever_they_are_defined(exact: dict[str, ReleaseEngine]) -> None:
    """Where all rows may be on the wrong side the bounds of the measure still hold the average."""
    average = exact["early"].query(
        "SELECT AVG(paid) AS a, DP_MODEL_BOUND(AVG(paid)) AS b FROM sales WHERE day = 20"
    )
    value, told = average.rows[0]
    assert average.model_bound[0][0] == told == pytest.approx(max(40 - value, value))
    ratio = exact["early"].query("SELECT SUM(paid) / SUM(change) FROM sales WHERE day = 20")
    assert ratio.model_bound == ((None,),)  # nothing bounds it


@pytest.mark.kernel
def test_ratios() -> None:
    above, below = np.array([10.0, 10.0, 10.0]), np.array([5.0, 5.0, 5.0])
    moved = np.array([4.0, 4.0, 0.0]), np.array([1.0, 5.0, 0.0])
    least, most = quotient_ends(above, below, (moved[0], moved[0] / 2), (moved[1], moved[1]))
    assert (least[0] / least[1]).tolist()[::2] == [6 / 6, 2.0] and (most[0] / most[1]).tolist()[::2] == [
        12 / 4,
        2.0,
    ]
    assert np.isnan(least[1][1]) and np.isnan(most[1][1])  # a denominator may be 0
    # four rows of sum 10 in whole bins, two of sum 4 in a cut one of which half is taken: at most one of 3 and one of 1
    one = np.ones(1)
    sums, counts = CutMass(2 * one, 2 * one, 2 * one, 4 * one), CutMass(one, one, one, 2 * one)
    least, most = average_ends((12 * one, 5 * one), sums, counts, (1.0, 3.0), 1.0)
    assert (least[0] / least[1])[0] == 11 / 5 and (most[0] / most[1])[0] == 13 / 5
    count, paid = Term(COUNT), Term(MeasureName("sales.paid"))
    view = SimpleNamespace(statistics={COUNT: SimpleNamespace(measure=COUNT)})
    few = Term(COUNT, Predicate(Expression("dp_c0 > 1", frozenset([0]))))
    assert average_of(Ratio(Linear(((paid, 2.0),)), Linear(((count, 1.0),)), mean=True), view) == (paid, 2.0)
    assert average_of(Ratio(Linear(((paid, 1.0),)), Linear(((count, 1.0),))), view) == (paid, 1.0)
    assert average_of(Ratio(Linear(((paid, 1.0),)), Linear(((few, 1.0),))), view) is None
    assert average_of(Ratio(Linear(((count, 1.0),)), Linear(((count, 1.0),))), view) is None
    assert average_of(Ratio(Linear(((paid, 1.0),), 3.0), Linear(((count, 1.0),)), mean=True), view) is None


@pytest.mark.slow
def test_noise_of_cells_cancels(tmp_path: Path) -> None:
    """An empty shop: summing cells that were cut at 0 one by one would leave a bound of several standard errors. No
    value beyond the domains may be meant."""
    bounds = []
    for seed in range(20):
        nobody, _ = star("even", tmp_path / str(seed), seeded(seed), {EVEN: EVEN.replace("300", "0")})
        answerer = ReleaseEngine(nobody.release, on_partial_bin="interpolate")
        text = "SELECT COUNT(*) FROM sales WHERE day BETWEEN 0 AND 99 AND shop IN (0, 1, 2, 3, 4)"
        found, wide = answerer.query(f"{text} AND day % 10 < 5"), answerer.query(text).rows[0][0]
        assert found.model_bound[0][0] == pytest.approx(max(0.0, wide / 2), abs=1e-4)
        bounds.append(found.model_bound[0][0])
    assert min(bounds) == 0.0 < max(bounds)


def test_user_level_bounds_are_as_large_as_what_is_cut(tmp_path: Path) -> None:
    """Tables with `max_ids: auto`: the reach of a weighted shape, which is far larger, has no part in it."""
    answerer = published(write_star(tmp_path, *uneven_rows(500, 3), delta="1e-6"), seeded(3))
    text = (
        "SELECT COUNT(*), SUM(amount), AVG(amount) FROM sales JOIN customer USING (id) "
        "WHERE region IN ('n', 's') AND day BETWEEN {} AND {}"
    )
    cut, first, last = (answerer.query(text.format(*days)) for days in ((2, 7), (1, 3), (7, 9)))
    for column in (0, 1):  # two thirds of the first bin, a third of the last
        parts = first.rows[0][column], last.rows[0][column]
        taken, others = 2 / 3 * parts[0] + 1 / 3 * parts[1], 1 / 3 * parts[0] + 2 / 3 * parts[1]
        assert cut.model_bound[0][column] == pytest.approx(max(taken, others), rel=1e-6)
    assert cut.model_bound[0][2] <= 100.0
    assert cut.rows[0][0] * 0.2 < cut.model_bound[0][0] < cut.rows[0][0]


def test_it_is_told(exact: dict[str, ReleaseEngine]) -> None:
    found = exact["even"].query("SELECT COUNT(*) AS n FROM sales WHERE day BETWEEN 5 AND 24")
    note = "2 bins of sales.day cut: interpolating them may shift count by up to 30; intervals include it"
    assert found.notes == (note,)
    assert found.provenance["notes"] == [note]
    assert any(note in line for line in found.plan)
    assert any("(2 bins cut: 50% of what is taken is interpolated)" in line for line in found.plan)
    shown = render(found, "table", 0.95).splitlines()
    assert shown[2].endswith("~30")
    assert shown[3] == "~ = the part of the margin that interpolating a cut bin may add"
    assert f"<p><small>{note}</small></p>" in found._repr_html_()
    whole = exact["even"].query("SELECT COUNT(*) AS n FROM sales WHERE day < 20")
    assert whole.notes == ()
    assert "~" not in render(whole, "table", 0.95)


def test_it_is_planned(tmp_path: Path) -> None:
    star("even", tmp_path)
    catalog = tmp_path / "catalog.yaml"
    asked = [
        "SELECT COUNT(*) FROM sales WHERE day < 20",
        "SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 24",
        "SELECT COUNT(*) FROM sales WHERE day BETWEEN 5 AND 24 AND shop < 3",
        "SELECT AVG(paid) FROM sales WHERE day = 20",
    ]
    refused = api.plan(catalog, asked).queries
    assert [query.refusal is not None for query in refused] == [False, False, True, True]
    assert "interpolated, more than half; take whole bins, which begin at 20, 30" in str(refused[3].refusal)
    catalog.write_text(catalog.read_text() + "on_partial_bin: interpolate\n")
    report = api.plan(catalog, asked)
    columns = [query.columns[0] for query in report.queries]
    assert [(c.cut, c.cut_bins) for c in columns] == [(False, 0), (True, 2), (True, 3), (True, 1)]
    assert [c.interpolated for c in columns] == pytest.approx([0.0, 0.5, 1.0, 1.0])
    text = plan_text(report)
    assert "cuts 2 bins: 50% of what is asked is interpolated, which widens intervals" in text
    assert "avg(paid): depends on the answer, cuts a bin: 100%" in text


@pytest.fixture(scope="module")
def limited(exact: dict[str, ReleaseEngine]) -> ReleaseEngine:
    """A release as analysts find it."""
    return ReleaseEngine(exact["even"].release)


def test_a_null_does_not_hide_a_cut_bin(tmp_path: Path) -> None:
    """NULL is a leaf like any other, but no stretch of the axis: without this 17% of two leaves were interpolated."""
    changes = {"upper: 99}": "upper: 99, nullable: true}", EVEN: "i AS day FROM range(99)"}
    answerer, _ = star("even", tmp_path, changes=changes)
    with pytest.raises(PartialBinError, match="100%"):
        answerer.query("SELECT COUNT(*) FROM sales WHERE day < 2 OR day IS NULL")
    assert answerer.query("SELECT COUNT(*) FROM sales WHERE day IS NULL").rows == ((0.0,),)
    assert answerer.query("SELECT day < 10, COUNT(*) FROM sales GROUP BY 1").rows


@pytest.mark.parametrize(("catalog", "view", "session", "answered"), [
    ("", "", None, (True, False)),
    ("", "", "limit", (True, False)),
    ("", "", "interpolate", (True, True)),
    ("", "", "refuse", (False, False)),
    ("interpolate", "", None, (True, True)),
    ("interpolate", "", "limit", (True, False)),
    ("interpolate", "limit", None, (True, False)),
    ("refuse", "", None, (False, False)),
    ("refuse", "", "interpolate", (False, False)),
    ("refuse", "interpolate", None, (True, True)),
    ("", "refuse", "interpolate", (False, False)),
    ("", "interpolate", None, (True, True)),
])  # fmt: skip
def test_who_says_so(
    exact: dict[str, ReleaseEngine],
    catalog: str,
    view: str,
    session: PartialBin | None,
    answered: tuple[bool, bool],
) -> None:
    """The view, else the catalog, else the limit; a session may be stricter, and lifts the limit but no refusal."""
    release = exact["even"].release
    said = {**release.meta.catalog, **({"on_partial_bin": catalog} if catalog else {})}
    said["views"] = {"days": {**said["views"]["days"], **({"on_partial_bin": view} if view else {})}}
    asked = ReleaseEngine(replace(release, meta=replace(release.meta, catalog=said)), on_partial_bin=session)
    for where, works in zip(("day < 14", "day < 4"), answered, strict=True):
        if works:
            assert asked.query(f"SELECT COUNT(*) FROM sales WHERE {where}").rows
        else:
            with pytest.raises(NoViewError):
                asked.query(f"SELECT COUNT(*) FROM sales WHERE {where}")


def test_other_words_are_refused(limited: ReleaseEngine) -> None:
    with pytest.raises(InterfaceError, match="interpolate, limit, refuse"):
        dpsql.connect(limited.release.path, insecure=True, on_partial_bin="half")


LEAN = """
privacy: {lineage: shop, cap: 9, unit: row, epsilon: 0.2}
tables: {sales: {role: fact, columns: {x: {type: int, lower: 0, upper: 9999, cuts: {width: 1000}}, y: {type: bool}}}}
views:
  by_x: {of: sales, axes: [sales.x], measures: [count], share: 0.2}
  by_y: {of: sales, axes: [sales.y], measures: [count], share: 0.8}
"""


def test_no_cut_bin_at_all_may_have_more_noise_than_all_of_it(tmp_path: Path) -> None:
    """Nearly all rows lie in the bin that is cut: ends had the noise of the whole table, and missed 39 rows at 49."""
    value = "CASE WHEN i < 2000 THEN 1000 + i % 9000 ELSE i % 1000 END"
    rows = f"SELECT {value} AS x, i % 2 = 0 AS y FROM range(8000) AS r(i)"
    catalog = write_catalog(tmp_path, LEAN, {"sales": rows})
    answers = published(catalog, seeded(1), on_partial_bin="interpolate")

    def ends(value: str) -> tuple[float, float]:
        ((low,),), ((high,),) = answers.query(f"SELECT {value} FROM sales").interval_rows(0.95)
        return low, high

    whole, part, cut = (ends(f"COUNT(*) FILTER (WHERE x >= {at})") for at in (0, 1000, 900))
    assert part[1] - part[0] > 1.2 * (whole[1] - whole[0])
    assert cut[0] <= part[0] + 1e-6 and cut[1] >= whole[1] - 1e-6
    difference = "COUNT(*) FILTER (WHERE x >= {}) - COUNT(*) FILTER (WHERE x < {})"
    cut, corner = (ends(difference.format(*at)) for at in ((900, 100), (1000, 1000)))
    assert cut[0] <= corner[0] + 1e-6 and cut[1] >= whole[1] - 1e-6
