"""Derived columns as measures and axes, of days and numbers that a CSV file writes in its own way; never NULL."""

from __future__ import annotations

import pytest

from dpsql.errors import NotSupportedError
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ZeroNoise
from tests.releases import published, write_catalog

CATALOG = """
dpsql: 1
name: kasse
source: {kind: csv, root: ".", csv: {delimiter: ";"}, tables: {kauf: kauf.csv}}
privacy: {lineage: kasse, cap: 9000, unit: row, epsilon: 900}
tables:
  kauf:
    role: fact
    derive:
      tag: "strptime(datum, '%d.%m.%Y')"
      summe: "replace(replace(betrag, '.', ''), ',', '.')"
      neu: "kunde = 'Ja'"
    columns:
      datum: {type: string}
      betrag: {type: string}
      kunde: {type: string}
      stueck: {type: int, lower: 0, upper: 10, measure: true}
      tag: {type: date, lower: 2023-01-01, upper: 2023-12-31, nullable: true, cuts: {width: month}}
      summe: {type: decimal, scale: 1, lower: 0, upper: 5000, measure: true, nullable: true}
      neu: {type: bool}
      jahre: {type: int, lower: 0, upper: 99, measure: true, nullable: true}
views:
  alter: {of: kauf, axes: [kauf.tag, kauf.jahre], measures: [count]}
  neue: {of: kauf, axes: [kauf.neu], measures: [count, "count(kauf.jahre)"]}
  tage: {of: kauf, axes: [kauf.tag, kauf.neu], measures: [count, kauf.summe, kauf.stueck]}
"""


@pytest.fixture(scope="module")
def kasse(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> ReleaseEngine:
    """Three rows a month: 1.234,5 and 0,5 and NA; every second month's are new customers."""
    folder = tmp_path_factory.mktemp("kasse")
    rows = [
        f"31.{m:02}.2023;{v};{'Ja' if m % 2 else 'Nein'}"
        for m in (1, 3, 12)
        for v in ("1.234,5", "0,5", "NA")
    ]
    (folder / "kauf.csv").write_text(
        "\n".join(
            [
                "datum;betrag;kunde;stueck;jahre",
                *(f"{row};4;{i % 3 or ''}" for i, row in enumerate(rows)),
                "NA;2;Nein;;7",
            ]
        )
    )
    return published(write_catalog(folder, CATALOG), ZeroNoise())


def test_a_derived_measure_is_summed_by_its_name_and_by_its_expression(kasse: ReleaseEngine):
    sql = "SELECT neu, SUM(summe), COUNT(summe), AVG(summe) FROM kauf WHERE tag IS NOT NULL GROUP BY neu ORDER BY neu"
    assert kasse.query(sql).rows == ((False, 1235.0, 2, 617.5), (True, 2470.0, 4, 617.5))
    spelt = "SELECT SUM(replace(replace(betrag, '.', ''), ',', '.')) FROM kauf"
    assert kasse.query(spelt).scalar() == kasse.query("SELECT SUM(summe) FROM kauf").scalar() == 3707.0


def test_a_derived_day_is_a_day_and_an_unread_one_is_null(kasse: ReleaseEngine):
    months = kasse.query(
        "SELECT month(tag) AS m, COUNT(*) AS n FROM kauf WHERE tag IS NOT NULL GROUP BY m HAVING n > 1"
    )
    assert months.rows == ((1, 3), (3, 3), (12, 3))
    assert kasse.query("SELECT COUNT(*) FROM kauf WHERE tag IS NULL").scalar() == 1


def test_a_measure_that_is_compared_has_no_axis(kasse: ReleaseEngine):
    with pytest.raises(NotSupportedError):
        kasse.query("SELECT COUNT(*) FROM kauf WHERE summe > 10")


def test_a_count_of_what_the_catalog_calls_never_null_says_so(kasse: ReleaseEngine):
    """It is that of all rows, and the row without pieces has the middle of the bounds: 5."""
    never = "the catalog declares kauf.{0} never NULL; COUNT(kauf.{0}) counts NULLs too"
    for _ in range(2):  # the second time its shape is known
        pieces = kasse.query("SELECT COUNT(*), COUNT(stueck), SUM(stueck) FROM kauf")
        assert pieces.rows == ((10, 10, 41),)
        assert (
            never.format("stueck") + ", and its sums and averages use the middle of its bounds for them"
            in pieces.notes
        )
    assert never.format("neu") in kasse.query("SELECT COUNT(neu) FROM kauf").notes
    for count in ("COUNT(*)", "COUNT(summe)", "COUNT(tag)", "SUM(stueck)"):
        assert not any("never NULL" in note for note in kasse.query(f"SELECT {count} FROM kauf").notes)


def test_a_count_of_its_own_leaves_what_the_column_s_axis_answers(kasse: ReleaseEngine):
    """One row of three has no years; a view of another axis counts them, and so does the axis itself."""
    assert kasse.query("SELECT COUNT(jahre) FROM kauf WHERE month(tag) = 3").scalar() == 2
    assert kasse.query("SELECT COUNT(jahre) FROM kauf").scalar() == 7
