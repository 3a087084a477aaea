"""`dpsql design`: views for questions. They answer them, err as predicted, and read as if written by hand.

Beside counts and sums it serves people in ranges, quantiles, moments and several queries; for statements that group
rows by the person it proposes summaries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.catalog import load_catalog, parse_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.contributions.rehearsal import Guess
from dpsql.curator.design import CatalogDesign, design_catalog, rounded
from dpsql.curator.design.axes import new_summaries, with_views
from dpsql.curator.design.views import Designed
from dpsql.curator.dry_release import dry_answerer, priced_plan
from dpsql.errors import CatalogError, InterfaceError, NoViewError
from dpsql.noise import ZeroNoise
from tests.command import dpsql_command
from tests.releases import published, write_catalog, write_tables
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """\
# Written by hand; what stands here stays.
dpsql: 1
name: shop
source: {kind: duckdb, root: "DATABASE", tables: {sales: sales, customer: customer, product: product}}
privacy: {lineage: shop, cap: 100, unit: row, epsilon: 20}
tables:
  customer:
    role: dimension
    key: customer_id
    columns: {age: {type: int, lower: 18, upper: 89}, region: {type: string, categories: [n, s]}}
  product: {role: dimension, key: pid, private: false, columns: {kind: {type: string}, class: {type: string}}}
  sales:
    role: fact
    foreign_keys: {customer_id: customer, pid: product}  # who and what
    columns:
      price: {type: int, lower: 0, upper: 100, measure: true}
      qty: {type: int, lower: 0, upper: 9, measure: true}
      grams: {type: int, lower: 0, upper: 5000000}
      sold: {type: date, lower: 2024-01-01, upper: 2025-12-31}
views:
  old: {of: sales, axes: [customer.age], measures: [count, sales.price]}
ledger: ledger.duckdb  # after the views
"""
TABLES = """
CREATE TABLE customer AS SELECT i AS customer_id, 18 + i % 70 AS age,
    CASE WHEN i % 3 = 0 THEN 'n' ELSE 's' END AS region
    FROM range(300) AS r(i);
CREATE TABLE product AS SELECT i AS pid, 'k' || i % 6 AS kind, 'c' || (i % 6) // 2 AS class
    FROM range(30) AS r(i);
CREATE TABLE sales AS SELECT i % 300 AS customer_id, i % 30 AS pid, i % 101 AS price, i % 10 AS qty,
    (i * 977) % 5000000 AS grams,
    DATE '2024-01-01' + CAST(i % 731 AS INTEGER) AS sold FROM range(6000) AS r(i);
"""
QUESTIONS = (
    "SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) WHERE age BETWEEN 30 AND 49 "
    "GROUP BY region",
    "SELECT kind, SUM(price * qty) AS revenue FROM sales JOIN product ON sales.pid = product.pid GROUP BY kind",
    "SELECT class, DATE_TRUNC('quarter', sold) AS q, SUM(price) AS p FROM sales JOIN product "
    "ON sales.pid = product.pid GROUP BY class, q",
    "SELECT COUNT(*) AS n FROM sales WHERE grams BETWEEN 123456 AND 2345678",
)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("design")
    with duckdb.connect(str(folder / "shop.duckdb")) as connection:
        connection.execute(TABLES)
    (folder / "shop.yaml").write_text(CATALOG.replace("DATABASE", str(folder / "shop.duckdb")))
    (folder / "q.sql").write_text(";\n".join(QUESTIONS[:2]) + ";\n")
    return folder


def design(
    shop: Path, asked: Sequence[str], guess: Guess | None = None, changes: Mapping[str, str] | None = None
) -> CatalogDesign:
    """Views for questions about the shop, words of whose catalog are changed."""
    file = shop / "shop.yaml"
    text = file.read_text()
    for old, new in (changes or {}).items():
        assert old in text
        text = text.replace(old, new)
    return design_catalog(text, file, asked, guess)


@pytest.fixture(scope="module")
def designed(publishes: None, shop: Path) -> CatalogDesign:
    return design(shop, QUESTIONS, Guess(300, 6000))


def test_what_is_designed_answers_the_questions(shop: Path, designed: CatalogDesign, tmp_path: Path) -> None:
    assert designed.served == len(QUESTIONS)
    written = tmp_path / "designed.yaml"
    written.write_text(designed.text)
    answerer = published(written, ZeroNoise())
    with duckdb.connect(str(shop / "shop.duckdb"), read_only=True) as connection:
        for sql in QUESTIONS:
            plain = sorted(
                (*map(str, row[:-1]), float(row[-1])) for row in connection.execute(sql).fetchall()
            )
            answer = answerer.query(sql)
            found = sorted((*map(str, row[:-1]), float(row[-1])) for row in answer.rows)
            assert [row[-1] for row in found if row[-1]] == pytest.approx([row[-1] for row in plain])
            assert not any(part for row in answer.model_bound for part in row if part)  # no leaf is cut
    answerer.release.close()


def test_predictions_are_relative_to_what_is_expected(shop: Path) -> None:
    few, many = (design(shop, QUESTIONS[:1], Guess(n, n)).questions[0] for n in (100, 1000))
    assert few.relative == pytest.approx(10 * many.relative)  # type: ignore[operator]
    median = many.columns[0].median
    assert many.relative == pytest.approx(median / (1000 * 20 / 72 / 2), rel=0.05)  # type: ignore[operator]


def test_the_text_reads_as_if_written_by_hand(designed: CatalogDesign) -> None:
    made = designed
    for kept in (
        "# Written by hand; what stands here stays.",
        "# who and what",
        "ledger: ledger.duckdb  # after the views",
    ):
        assert kept in made.text
    assert "  old:" not in made.text and made.text.count("views:") == 1
    revenue = '    measures:\n      revenue: {expr: "price * qty", scale: 0, lower: 0, upper: 900}\n    role: fact\n'
    assert revenue in made.text
    axes = {str(axis): name for name, view in made.views.items() for axis in view["axes"]}
    assert "{'axis': 'sales.sold', 'cuts': {'width': 'quarter'}}" in axes
    # more values than leaves: cut where asked
    assert "{'axis': 'sales.grams', 'cuts': ['123456', '2345679']}" in axes
    assert "customer.age" in axes  # few values need no cuts
    assert sum(Fraction(view["share"]) for view in made.views.values()) == 1


def test_measures_go_into_flow_style_too(shop: Path) -> None:
    text = CATALOG.replace("DATABASE", str(shop / "shop.duckdb"))
    at, end = text.index("  sales:\n"), text.index("views:")
    flow = """  sales: {role: fact, foreign_keys: {customer_id: customer, pid: product}, columns: {
    price: {type: int, lower: 0, upper: 100, measure: true}, qty: {type: int, lower: 0, upper: 9}}}
"""
    made = design_catalog(text[:at] + flow + text[end:], shop / "shop.yaml", QUESTIONS[1:2], None)
    assert (
        'sales: {measures: {revenue: {expr: "price * qty", scale: 0, lower: 0, upper: 900}}, role: fact'
        in made.text
    )


def test_what_cannot_be_served_says_why(shop: Path) -> None:
    asked = {
        QUESTIONS[0]: "", "SELECT * FROM sales": "contains no rows", "SELECT COUNT(*) FROM nothing": "nothing",
        "SELECT COUNT(DISTINCT customer_id) FROM sales": "write `unit: customer.customer_id`",
    }  # fmt: skip
    reasons = [question.refusal or "" for question in design(shop, tuple(asked)).questions]
    assert all(part in reason for part, reason in zip(asked.values(), reasons, strict=True)), reasons
    with pytest.raises(CatalogError, match="no statement can be served"):
        design(shop, ("SELECT age FROM customer LIMIT 3",))
    with pytest.raises(InterfaceError, match="no question"):
        design(shop, ())


def test_a_refused_question_names_the_view_that_answers_it(shop: Path, tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    before = tmp_path / "before" / "shop.yaml"
    before.write_text((shop / "shop.yaml").read_text())
    answerer = published(before, ZeroNoise())
    sql = QUESTIONS[2]
    with pytest.raises(NoViewError) as refused:
        answerer.query(sql)
    answerer.release.close()
    view = str(refused.value).split("`")[1]
    axes = "[{axis: product, by: [class]}, sales.sold]"
    assert view == f"class_by_sold: {{of: sales, axes: {axes}, measures: [count, sales.price]}}"
    more = tmp_path / "more.yaml"
    more.write_text((shop / "shop.yaml").read_text().replace("views:\n", f"views:\n  {view}\n"))
    again = published(more, ZeroNoise())
    assert len(again.query(sql).rows) >= 3 * 8
    again.release.close()


@pytest.mark.slow
def test_all_pairs_of_axes_are_a_cube(shop: Path) -> None:
    homes = {"age": "customer", "region": "customer", "qty": "", "kind": "product", "price": ""}
    joins = {
        "customer": " JOIN customer USING (customer_id)",
        "product": " JOIN product ON sales.pid = product.pid",
        "": "",
    }
    pairs = []
    for a, b in combinations(homes, 2):
        joined = "".join(joins[home] for home in dict.fromkeys((homes[a], homes[b])))
        pairs.append(f"SELECT {a}, {b}, COUNT(*) AS n FROM sales{joined} GROUP BY {a}, {b}")
    made = design(shop, pairs, None, {"epsilon: 20": "epsilon: 1, delta: 1e-6"})
    assert made.served == len(pairs)
    (cube,) = made.views.values()
    assert (cube["ways"], len(cube["axes"])) == (2, 5)


def test_coarse_and_fine_questions_about_the_same_columns_are_views_of_their_own(shop: Path) -> None:
    one_law = {"epsilon: 20": "epsilon: 1, delta: 1e-6"}  # of rows, however many views
    joined = "FROM sales JOIN product ON sales.pid = product.pid GROUP BY"
    coarse = f"SELECT class, EXTRACT(YEAR FROM sold) AS y, SUM(price) AS p {joined} class, y"
    fine = f"SELECT kind, sold, SUM(price * qty) AS p {joined} kind, sold"
    both = design(shop, (coarse, fine), Guess(300, 6000), one_law)
    alone = design(shop, (coarse,), Guess(300, 6000), one_law)
    assert len(both.views) == 2
    half = both.questions[0].relative / alone.questions[0].relative  # type: ignore[operator]
    # the other one takes half of the budget, mu^2, and nothing else
    assert half == pytest.approx(math.sqrt(2), rel=0.05)


def test_a_city_tells_its_nation(shop: Path, tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(TABLES)
        connection.execute("ALTER TABLE customer ADD COLUMN city VARCHAR DEFAULT 'n0 c0'")
        connection.execute("ALTER TABLE customer ADD COLUMN nation VARCHAR DEFAULT 'n0'")
        connection.execute(
            "CREATE TABLE place AS SELECT 'n' || i // 4 AS nation, 'n' || i // 4 || ' c' || i AS city "
            "FROM range(20) AS r(i)"
        )
    levels = "{type: string, from: place, axis: {levels: [nation, city]}}"
    text = (
        CATALOG.replace("DATABASE", str(tmp_path / "shop.duckdb"))
        .replace("customer: customer,", "customer: customer, place: place,")
        .replace("columns: {age:", f"columns: {{city: {levels}, nation: {{type: string, from: place}}, age:")
        .replace("tables:\n  customer", "tables:\n  place: {role: domain}\n  customer")
    )
    (tmp_path / "shop.yaml").write_text(text)
    asked = [
        f"SELECT {column}, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY {column}"
        for column in ("nation", "city")
    ]
    made = design_catalog(text, tmp_path / "shop.yaml", asked, None)
    assert made.served == 2
    (view,) = made.views.values()
    assert view["axes"] == ["customer.city"]


OF_PEOPLE = {
    "unit: row": "unit: customer.customer_id", "    key: customer_id": "    key: customer_id\n    private: true",
}  # fmt: skip


def test_people_are_counted_where_they_are_the_unit(shop: Path, tmp_path: Path) -> None:
    asked = [
        "SELECT COUNT(DISTINCT customer_id) AS n FROM sales",
        "SELECT kind, COUNT(DISTINCT customer_id) AS n, COUNT(*) AS m FROM sales "
        "JOIN product ON sales.pid = product.pid GROUP BY kind",
    ]
    made = design(shop, asked, Guess(300, 6000), OF_PEOPLE | {"  # who and what": "\n    max_ids: 30"})
    assert made.served == 2 and any("people" in view["measures"] for view in made.views.values())
    (tmp_path / "designed.yaml").write_text(made.text)
    designed = load_catalog(tmp_path / "designed.yaml")
    with closing(open_public(designed)) as public:
        priced = priced_plan(designed, axis_maker(designed, public))
    with dry_answerer(priced) as dry:
        dry_run = dry.query(asked[0])
        spread, noise = dry_run.stderr_rows[0][0], dry_run.noise_rows[0][0]
    assert made.questions[0].columns[0].median == pytest.approx(spread)
    assert made.questions[0].relative == pytest.approx(noise / 300)  # people, not rows
    quotient = ["SELECT COUNT(*) / COUNT(DISTINCT customer_id) FROM sales"]
    each = design(shop, quotient, None, OF_PEOPLE | {"  # who and what": "\n    max_ids: 30"})
    assert each.served == 1  # rows and people of one view, which answers them apart
    answerer = published(tmp_path / "designed.yaml", ZeroNoise())
    assert answerer.query(asked[0]).scalar() == 300
    answerer.release.close()


def test_what_no_view_can_count_says_why_and_leaves_the_others_alone(shop: Path) -> None:
    view = "of: {}, axes: [customer.age], measures: [{}]"
    of_people = {view.format("sales", "count, sales.price"): view.format("customer", "count")}
    asked = [
        "SELECT region, COUNT(*) AS n FROM customer GROUP BY region",
        "SELECT COUNT(*) AS n FROM sales WHERE qty > 5",
    ]
    made = design(shop, asked, None, OF_PEOPLE | of_people)
    assert [question.refusal is None for question in made.questions] == [True, False]
    assert "max_ids" in (made.questions[1].refusal or "")


def test_derived_columns_are_axes_by_name_and_by_expression(shop: Path) -> None:
    derived = """
    derive: {weekday: "EXTRACT(DOW FROM sold)"}
    columns:
      weekday: {type: int, lower: 0, upper: 6}"""
    asked = ["SELECT weekday, COUNT(*) AS n FROM sales GROUP BY weekday",
             "SELECT EXTRACT(DOW FROM sold) AS w, COUNT(*) AS n FROM sales GROUP BY w"]  # fmt: skip
    made = design(shop, asked, None, {"\n    columns:\n      price": f"{derived}\n      price"})
    assert made.served == 2
    assert [view["axes"] for view in made.views.values()] == [["sales.weekday"]]


def test_a_foreign_key_is_an_axis_by_the_key_it_names(shop: Path) -> None:
    made = design(shop, ("SELECT pid, COUNT(*) AS n FROM sales GROUP BY pid",))
    assert made.served == 1
    assert [view["axes"] for view in made.views.values()] == [[{"axis": "product", "by": ["pid"]}]]


def test_what_views_said_is_asked_gives_way_to_the_workload(shop: Path, tmp_path: Path) -> None:
    log = "axes: [{axis: customer.age, workload: [[18, 30], [30, 45, 2]]}]"
    (tmp_path / "shop.yaml").write_text((shop / "shop.yaml").read_text().replace("axes: [customer.age]", log))
    run = dpsql_command("design", tmp_path / "shop.yaml", "--workload", shop / "q.sql")
    assert run.returncode == 0, run.stderr
    said = run.stdout + run.stderr
    assert "views.old: `workload` of customer.age is not used" in said and "workload: [[" not in said


def test_the_command_shows_views_and_errors(shop: Path, tmp_path: Path) -> None:
    words = ["design", shop / "shop.yaml", "--workload", shop / "q.sql"]
    run = dpsql_command(*words, "--units", "300", "--rows", "6000")
    assert run.returncode == 0 and run.stdout.startswith("views:\n")
    assert "of a typical answer" in run.stdout + run.stderr
    assert dpsql_command(*words, "--units", "3").returncode == 2
    written = tmp_path / "out.yaml"
    assert dpsql_command(*words, "-o", written).returncode == 0
    assert load_catalog(written).views


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60))
def test_round_shares_add_up(weights: list[float]) -> None:
    parts = rounded(weights)
    assert sum(parts) == 1 and min(parts) > 0


@pytest.mark.parametrize("power", [1, 2])
def test_parts_of_one_question_are_the_known_best(power: int) -> None:
    errors = {"count": 3.0, "t.x": 40.0}
    view = Designed((), "t", (), (errors,), tuple(errors), power)
    best = {name: error ** (1 / (power + 1)) for name, error in errors.items()}
    assert view.parts == pytest.approx(
        {name: part / sum(best.values()) for name, part in best.items()}, rel=1e-6
    )


@pytest.mark.parametrize("axes", [7, pytest.param(9, marks=pytest.mark.slow)])
def test_one_column_questions_under_a_delta_make_no_cube_of_all_their_axes(axes: int, tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(axes)]  # a cube of seven has 10^7 cells
    columns = ", ".join(f"{name}: {{type: int, lower: 0, upper: 9}}" for name in names)
    values = ", ".join(f"(i * {i + 3}) % 10 AS {name}" for i, name in enumerate(names))
    write_tables(tmp_path, {"t": f"SELECT {values} FROM range(500) AS r(i)"})
    text = (
        "dpsql: 1\nname: t\nsource: {kind: parquet, tables: {t: t.parquet}}\n"
        "privacy: {lineage: t, cap: 100, unit: row, epsilon: 1, delta: 1.0e-6}\n"
        f"tables: {{t: {{role: fact, columns: {{{columns}}}}}}}\n"
        "views: {old: {of: t, axes: [t.c0], measures: [count]}}\n"
    )
    questions = [f"SELECT {name}, COUNT(*) FROM t GROUP BY 1" for name in names]
    found = design_catalog(text, tmp_path / "t.yaml", questions, None)
    (tmp_path / "new.yaml").write_text(found.text)
    views = load_catalog(tmp_path / "new.yaml").views
    assert {axis.axis.rpartition(".")[2] for view in views.values() for axis in view.axes} == set(names)


def test_a_count_of_a_measure_that_nobody_sums_is_a_count(shop: Path) -> None:
    """Its view holds how many rows have a value, and not the values."""
    nullable = {"measure: true}\n      qty": "measure: true, nullable: true}\n      qty"}
    asked = ("SELECT region, COUNT(price) FROM sales JOIN customer USING (customer_id) GROUP BY region",)
    made = design(shop, asked, None, nullable)
    assert [question.refusal for question in made.questions] == [None]
    assert '"count(sales.price)"' in made.text and "sales.price," not in made.text


CLINIC = """\
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


def views_for(*statements: str) -> CatalogDesign:
    """Nothing private is opened: there is no such file."""
    return design_catalog(CLINIC, Path("clinic.yaml"), statements, None)


def axes(design: CatalogDesign) -> list[list[object]]:
    return [list(view["axes"]) for view in design.views.values()]


@pytest.mark.parametrize(("statement", "axis", "cuts"), by_default([
    ("SELECT COUNT(DISTINCT id) FROM visit WHERE drugs > 10", "drugs", ["11"]),
    ("SELECT COUNT(*) FROM visit WHERE dose >= 80.5", "dose", ["80.500"]),
    ("SELECT COUNT(*) FROM visit WHERE dose BETWEEN 80 AND 90", "dose", ["80.000", "90.001"]),
    ("SELECT COUNT(*) FROM visit WHERE dose < 0.0005", "dose", ["0.001"]),
    ("SELECT DATE_TRUNC('month', at) AS month, COUNT(*) FROM visit GROUP BY 1", "at", {"width": "month"}),
], 2))  # fmt: skip
def test_an_axis_of_more_values_than_leaves_is_cut_where_questions_end_or_by_the_calendar(
    statement, axis, cuts
):
    """Whoever is in two of 301 leaves would count twice; two million numbers without cuts were a ValueError."""
    design = views_for(statement)
    assert [question.refusal for question in design.questions] == [None]
    assert axes(design) == [[{"axis": f"visit.{axis}", "cuts": cuts}]]
    assert axis != "drugs" or [column.view for column in design.questions[0].columns] == ["drugs"]


def test_ranges_on_two_axes_become_single_cells():
    design = views_for(
        "SELECT COUNT(DISTINCT id) FROM visit WHERE drugs BETWEEN 5 AND 10 AND weight >= 80",
        "SELECT year, COUNT(DISTINCT id) FROM visit GROUP BY year",
    )
    assert design.served == 2
    cuts = [[axis["cuts"] for axis in each if isinstance(axis, dict)] for each in axes(design)]
    assert [["5", "11"], ["80.000"]] in cuts


@pytest.mark.parametrize("beside", by_default(["", "COUNT(*), ", "COUNT(*), SUM(weight), "], 1))
def test_a_quantile_gets_counts_along_its_column_and_a_share_like_others(beside):
    design = views_for(f"SELECT year, {beside}MEDIAN(drugs) FROM visit GROUP BY year")
    assert design.served == 1
    along = next(view for view in design.views.values() if len(view["axes"]) == 2)
    assert sorted(along["axes"], key=str) == ["visit.year", {"axis": "visit.drugs", "cuts": {"width": "5"}}]
    # without a share views are weighted by the planner, which looks at all cells
    assert float(along.get("share", 1)) >= 1 / len(design.views)


def test_two_quantiles_are_two_lines_and_no_plane():
    design = views_for("SELECT MEDIAN(drugs), QUANTILE_CONT(weight, 0.9) FROM visit")
    assert design.served == 1 and [len(each) for each in axes(design)] == [1, 1]


def test_a_quantile_is_served_beside_views_that_have_its_columns_apart():
    design = views_for(
        "SELECT year, COUNT(*) FROM visit GROUP BY year",
        "SELECT drugs, COUNT(*) FROM visit GROUP BY drugs",
        "SELECT year, MEDIAN(drugs) FROM visit GROUP BY year",
    )
    assert design.served == 3


def test_a_standard_deviation_gets_squares_and_is_not_called_exact():
    design = views_for("SELECT year, STDDEV(drugs) AS spread FROM visit GROUP BY year")
    (view,), (question,) = design.views.values(), design.questions
    assert {"visit.drugs", "squares(visit.drugs)"} <= set(view["measures"])
    assert "squares(visit.drugs)" in design.text and "squares_of" not in design.text
    assert [(column.name, column.median) for column in question.columns] == [("spread", None)]


def test_only_what_is_made_of_noise_is_said_to_depend_on_the_answer():
    inner = "SELECT year, STDDEV(drugs) AS spread FROM visit GROUP BY year"
    (question,) = views_for(f"SELECT year, 2 * spread AS twice FROM ({inner}) AS s").questions
    assert [column.name for column in question.columns] == ["twice"]
    both = "SELECT STDDEV(drugs) AS spread FROM visit UNION ALL SELECT STDDEV(drugs) FROM visit WHERE year > 2004"
    (question,) = views_for(both).questions
    assert [column.name for column in question.columns] == ["spread"]


@pytest.mark.parametrize("column", ["height", "income"])
def test_squares_without_room_refuse_their_question_alone(column):
    """Twelve digits behind the point; squares up to 1e18, whose noise 64 bits do not hold at any budget."""
    design = views_for(
        f"SELECT STDDEV({column}) FROM visit", f"SELECT SUM({column}), STDDEV(drugs) FROM visit"
    )
    refused, served = design.questions
    assert refused.refusal is not None and "squares" in refused.refusal
    assert served.refusal is None


def test_queries_in_one_statement_each_get_their_view():
    design = views_for(
        "SELECT (SELECT SUM(drugs) FROM visit) / (SELECT COUNT(*) FROM person)",
        "SELECT SUM(weight) FROM visit UNION ALL SELECT COUNT(*) FROM person WHERE sex = 1",
    )
    assert design.served == 2
    assert {view["of"] for view in design.views.values()} == {"visit", "person"}
    assert design.questions[0].columns, "it is noisy, though no form says how"


BY_PERSON = """\
dpsql: 1
name: shop
source: {kind: duckdb, root: ROOT, tables: {sales: sales, customer: customer}}
privacy: {lineage: shop, cap: 100, unit: customer.id, epsilon: 20, delta: 1e-6}
tables:
  customer:
    role: dimension
    key: id
    columns: {region: {type: string, categories: [n, s]}}
    summaries:
      old: {of: sales, is: max(day), type: date, lower: 2025-01-01, upper: 2025-12-31, nullable: true}
  sales:
    role: fact
    foreign_keys: {id: customer}
    max_ids: 30
    columns:
      amount: {type: int, lower: 0, upper: 50, measure: true}
      day: {type: date, lower: 2025-01-01, upper: 2025-12-31}
      kind: {type: string, categories: [a, b, c]}
views:
  old: {of: customer, axes: [customer.old], measures: [count]}
ledger: ledger.duckdb
"""
OWNED = """
CREATE TABLE customer AS SELECT i AS id, CASE WHEN i % 3 = 0 THEN 'n' ELSE 's' END AS region FROM range(60) AS r(i);
CREATE TABLE sales AS SELECT i % 47 % 41 AS id, i * 7 % 51 AS amount,
    DATE '2025-01-01' + CAST(i * 31 % 365 AS INT) AS day,
    CASE i % 5 WHEN 0 THEN 'a' WHEN 1 THEN 'b' ELSE 'c' END AS kind FROM range(200) AS r(i);
"""
STATEMENTS = (
    "SELECT COUNT(*) FROM (SELECT id, COUNT(*) AS n FROM sales GROUP BY id HAVING COUNT(*) >= 3) q",
    "SELECT n, COUNT(*) FROM (SELECT id, COUNT(DISTINCT kind) AS n FROM sales GROUP BY 1) t GROUP BY 1 ORDER BY 1",
    "SELECT COUNT(*) FROM (SELECT id FROM sales WHERE kind = 'a' GROUP BY id HAVING SUM(amount) > 20) t",
    "SELECT region, COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE kind = 'b' GROUP BY 1) "
    "GROUP BY 1 ORDER BY 1",
    "SELECT COUNT(*) FROM (SELECT id, MIN(day) AS f FROM sales GROUP BY id) t WHERE f < DATE '2025-02-01'",
)


def test_bounds_follow_from_declared_columns() -> None:
    catalog = parse_catalog(BY_PERSON.replace("ROOT", "nowhere.duckdb"))
    counts: Mapping[str, Any] = {"type": "int", "lower": "0", "upper": "200", "measure": True}
    assert new_summaries(catalog, STATEMENTS) == {
        "visits": {"of": "sales", "is": "count(*)", **counts},
        "kinds_of_kind": {"of": "sales", "is": "count(DISTINCT kind)", **counts, "upper": "3"},
        "total_amount": {
            "of": "sales", "is": "sum(amount) FILTER (WHERE kind = 'a')", "type": "int", "lower": "0", "upper": "1500",
            "measure": True,
        },
        "rows_with_sales": {"of": "sales", "is": "count(*) FILTER (WHERE kind = 'a')", **counts},
        "rows_with_sales_2": {"of": "sales", "is": "count(*) FILTER (WHERE kind = 'b')", **counts},
        "least_day": {
            "of": "sales", "is": "min(day)", "type": "date", "lower": "2025-01-01", "upper": "2025-12-31",
            "nullable": True,
        },
    }  # fmt: skip
    # nothing for what the catalog has, for what no summary is, and for what it does not declare
    known = (
        "SELECT COUNT(*) FROM (SELECT id, MAX(day) AS d FROM sales GROUP BY id) t WHERE d < DATE '2025-02-01'"
    )
    unknown = "SELECT COUNT(*) FROM (SELECT id, MAX(size) AS d FROM sales GROUP BY id) t WHERE d < 3"
    average = "SELECT COUNT(*) FROM (SELECT id, AVG(amount) AS d FROM sales GROUP BY id) t WHERE d < 3"
    assert new_summaries(catalog, (known, unknown, average)) == {}


@pytest.mark.usefixtures("publishes")
def test_designed_summaries_answer_the_questions(tmp_path: Path) -> None:
    """Without noise, answers but for empty groups are DuckDB's over raw rows; what no question reads is taken out."""
    root = tmp_path / "shop.duckdb"
    with duckdb.connect(str(root)) as connection:
        connection.execute(OWNED)
        truths = [connection.execute(sql).fetchall() for sql in STATEMENTS]
    text = BY_PERSON.replace("ROOT", str(root)).replace("ledger.duckdb", str(tmp_path / "ledger.duckdb"))
    designed = design_catalog(text, tmp_path / "shop.yaml", STATEMENTS, None)
    assert designed.served == len(STATEMENTS)
    assert "old is left out: no question uses it" in designed.notes
    assert list(parse_catalog(designed.text).tables["customer"].summaries) == list(designed.summaries)
    answerer = published(write_catalog(tmp_path, designed.text), ZeroNoise())
    answers = [[tuple(row) for row in answerer.query(sql).rows if row[-1] != 0] for sql in STATEMENTS]
    assert answers == truths


BLOCK = """\
tables:
  t:
    key: id
    summaries:
      a: {of: s, is: count(*)}
      b:
        of: s
        is: min(x)
  u: {key: k}
"""
FLOW = "tables: {t: {key: id, summaries: {a: {of: s}, b: {of: s}}}, u: {key: k}}\n"


@pytest.mark.parametrize("text", [BLOCK, FLOW])
@pytest.mark.parametrize(
    ("unused", "gained", "names"),
    [
        ((), ("c",), ["c", "a", "b"]), (("a",), ("c",), ["c", "b"]), (("b",), (), ["a"]), (("b",), ("c",), ["c", "a"]),
        (("a", "b"), ("c",), ["c"]), (("a", "b"), (), []),
    ],
)  # fmt: skip
def test_the_rest_of_the_text_stays(
    text: str, unused: tuple[str, ...], gained: tuple[str, ...], names: list[str]
) -> None:
    import yaml

    summaries = {name: {"of": "s"} for name in gained}
    views = {"v": {"of": "t", "measures": [f"t.{name}" for name in gained]}}
    changed = yaml.safe_load(with_views(text, views, {}, "t", summaries, unused))
    assert changed["tables"]["t"].get("excess_share") == (0.01 if gained else None)
    assert list(changed["tables"]["t"].get("summaries", {})) == names
    before = yaml.safe_load(text)["tables"]
    assert changed["tables"]["u"] == before["u"]
    kept = {name: entry for name, entry in before["t"]["summaries"].items() if name in names}
    assert {n: e for n, e in changed["tables"]["t"].get("summaries", {}).items() if n not in gained} == kept
    assert changed["tables"]["t"]["key"] == "id"
