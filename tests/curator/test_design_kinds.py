"""`dpsql design` serves more than counts and sums: people in ranges, quantiles, moments, several queries."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.curator.design import CatalogDesign, design_catalog

CATALOG = """\
dpsql: 1
name: clinic
source: {kind: csv, root: ., csv: {delimiter: ",", quote: '"', escape: '"', encoding: utf-8, "null": ""},
         tables: {person: person.csv, visit: visit.csv}}
privacy: {lineage: clinic, cap: 4, unit: person.id, epsilon: 1, delta: 1e-6}
tables:
  person: {role: dimension, key: id, private: true, columns: {sex: {type: int, lower: 0, upper: 1}}}
  visit:
    role: fact
    foreign_keys: {id: person}
    max_ids: 4
    columns:
      year: {type: int, lower: 2001, upper: 2008}
      drugs: {type: int, lower: 0, upper: 300, measure: true}
      weight: {type: decimal, scale: 3, lower: 0, upper: 200, measure: true}
      dose: {type: decimal, scale: 3, lower: 0, upper: 2000}
      at: {type: timestamp, grain: second, lower: 2001-01-01, upper: 2008-12-31}
      income: {type: int, lower: 0, upper: 2000000000, measure: true}
      height: {type: decimal, scale: 6, lower: 0, upper: 3, measure: true}
views:
  old: {of: visit, axes: [visit.year], measures: [count]}
ledger: ledger.duckdb
"""


def designed(*statements: str) -> CatalogDesign:
    """Nothing private is opened: there is no such file."""
    return design_catalog(CATALOG, Path("clinic.yaml"), statements, None)


def axes(design: CatalogDesign) -> list[list[object]]:
    return [list(view["axes"]) for view in design.views.values()]


def test_people_in_a_range_get_an_axis_cut_at_its_ends():
    """Of 301 values each is a leaf of its own otherwise, and who is in two of them would count twice."""
    design = designed("SELECT COUNT(DISTINCT id) FROM visit WHERE drugs > 10")
    assert [question.refusal for question in design.questions] == [None]
    assert axes(design) == [[{"axis": "visit.drugs", "cuts": ["11"]}]]
    assert [column.view for column in design.questions[0].columns] == ["drugs"]


def test_ranges_on_two_axes_become_single_cells():
    design = designed(
        "SELECT COUNT(DISTINCT id) FROM visit WHERE drugs BETWEEN 5 AND 10 AND weight >= 80",
        "SELECT year, COUNT(DISTINCT id) FROM visit GROUP BY year",
    )
    assert design.served == 2
    cuts = [[axis["cuts"] for axis in each if isinstance(axis, dict)] for each in axes(design)]
    assert [["5", "11"], ["80.000"]] in cuts


@pytest.mark.parametrize(
    ("condition", "cuts"),
    [
        ("dose >= 80.5", ["80.500"]),
        ("dose BETWEEN 80 AND 90", ["80.000", "90.001"]),
        ("dose < 0.0005", ["0.001"]),
    ],
)
def test_an_axis_of_more_numbers_than_leaves_is_cut_where_questions_end(condition, cuts):
    """Two million values of a decimal number without cuts: such an axis was a ValueError."""
    assert axes(designed(f"SELECT COUNT(*) FROM visit WHERE {condition}")) == [
        [{"axis": "visit.dose", "cuts": cuts}]
    ]


def test_an_axis_of_more_moments_than_leaves_is_cut_by_the_calendar():
    design = designed("SELECT DATE_TRUNC('month', at) AS month, COUNT(*) FROM visit GROUP BY 1")
    assert axes(design) == [[{"axis": "visit.at", "cuts": {"width": "month"}}]]


@pytest.mark.parametrize("beside", ["", "COUNT(*), ", "COUNT(*), SUM(weight), "])
def test_a_quantile_gets_counts_along_its_column_and_a_share_like_others(beside):
    design = designed(f"SELECT year, {beside}MEDIAN(drugs) FROM visit GROUP BY year")
    assert design.served == 1
    along = next(view for view in design.views.values() if len(view["axes"]) == 2)
    assert sorted(along["axes"], key=str) == ["visit.year", {"axis": "visit.drugs", "cuts": {"width": "5"}}]
    # without a share views are weighted by the planner, which looks at all cells
    assert float(along.get("share", 1)) >= 1 / len(design.views)


def test_two_quantiles_are_two_lines_and_no_plane():
    design = designed("SELECT MEDIAN(drugs), QUANTILE_CONT(weight, 0.9) FROM visit")
    assert design.served == 1 and [len(each) for each in axes(design)] == [1, 1]


def test_a_quantile_is_served_beside_views_that_have_its_columns_apart():
    design = designed(
        "SELECT year, COUNT(*) FROM visit GROUP BY year",
        "SELECT drugs, COUNT(*) FROM visit GROUP BY drugs",
        "SELECT year, MEDIAN(drugs) FROM visit GROUP BY year",
    )
    assert design.served == 3


def test_a_standard_deviation_gets_squares_and_is_not_called_exact():
    design = designed("SELECT year, STDDEV(drugs) AS spread FROM visit GROUP BY year")
    (view,), (question,) = design.views.values(), design.questions
    assert {"visit.drugs", "squares(visit.drugs)"} <= set(view["measures"])
    assert "squares(visit.drugs)" in design.text and "squares_of" not in design.text
    assert [(column.name, column.median) for column in question.columns] == [("spread", None)]


def test_only_what_is_made_of_noise_is_said_to_depend_on_the_answer():
    inner = "SELECT year, STDDEV(drugs) AS spread FROM visit GROUP BY year"
    (question,) = designed(f"SELECT year, 2 * spread AS twice FROM ({inner}) AS s").questions
    assert [column.name for column in question.columns] == ["twice"]
    both = "SELECT STDDEV(drugs) AS spread FROM visit UNION ALL SELECT STDDEV(drugs) FROM visit WHERE year > 2004"
    (question,) = designed(both).questions
    assert [column.name for column in question.columns] == ["spread"]


@pytest.mark.parametrize("column", ["height", "income"])
def test_squares_without_room_refuse_their_question_alone(column):
    """Twelve digits behind the point; squares up to 1e18, whose noise 64 bits do not hold at any budget."""
    design = designed(
        f"SELECT STDDEV({column}) FROM visit", f"SELECT SUM({column}), STDDEV(drugs) FROM visit"
    )
    refused, served = design.questions
    assert refused.refusal is not None and "squares" in refused.refusal
    assert served.refusal is None


def test_queries_in_one_statement_each_get_their_view():
    design = designed(
        "SELECT (SELECT SUM(drugs) FROM visit) / (SELECT COUNT(*) FROM person)",
        "SELECT SUM(weight) FROM visit UNION ALL SELECT COUNT(*) FROM person WHERE sex = 1",
    )
    assert design.served == 2
    assert {view["of"] for view in design.views.values()} == {"visit", "person"}
    assert design.questions[0].columns, "it is noisy, though no form says how"
