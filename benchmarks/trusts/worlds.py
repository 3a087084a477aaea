"""Stars whose people report one attribute each: the bundled shop, FoodMart's customers, the people of Adult."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsql.examples.retail import make_star, write_star
from tests.releases import write_tables

SEED, PEOPLE, BOXES = 3, 50_000, 48
FOUR, FIFTEEN = (30, 45, 65), (20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85)
_HEAD = """dpsql: 1
name: {name}
source: {{kind: parquet, root: ROOT, tables: {{{files}}}, reports: {{{people}: REPORTS}}}}
privacy: {{lineage: w, cap: 9, unit: {people}.{key}, epsilon: 1, delta: DELTA}}
"""
_SALES = "sales: sales.parquet, customer: customer.parquet"


class Box(NamedTuple):
    """Values of the attribute from low to high, both included, and what else is asked."""

    low: int
    high: int
    central: str


@dataclass(frozen=True)
class World:
    """A star and what is asked of it.

    Args:
        catalog: its text; ROOT, REPORTS, REPORTED, MEASURES and DELTA are filled in.
        column: the attribute.
        measure, summed: what is summed, and as views name it.
        people, key: the table of the people, and its key.
        joined: what stands after FROM.
        starts: first values of the attribute's leaves, then the first value beyond.
        boxes: what is asked.
        write: writes the raw tables into a folder.
        facts: SQL of the rows that count over these tables: unit (text), the attribute, weight w, measure, the rest.
    """

    catalog: str
    column: str
    measure: str
    summed: str
    people: str
    key: str
    joined: str
    starts: tuple[int, ...]
    boxes: tuple[Box, ...]
    write: Callable[[Path], None]
    facts: str

    def asked(self, box: Box) -> str:
        """A box in SQL."""
        return f"{self.column} BETWEEN {box.low} AND {box.high} AND {box.central}"


def _ranges(starts: Sequence[int], central: Sequence[str], seed: int = 1) -> tuple[Box, ...]:
    """Random ranges of leaves, each with one of the other conditions."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(BOXES):
        i, j = sorted(rng.choice(len(starts), 2, replace=False).tolist())
        found.append(Box(starts[i], starts[j] - 1, central[int(rng.integers(len(central)))]))
    return tuple(found)


def _cells(starts: Sequence[int], central: Sequence[str]) -> tuple[Box, ...]:
    return tuple(Box(a, b - 1, c) for a, b in pairwise(starts) for c in central)


def _months(column: str) -> list[str]:
    return [f"EXTRACT(month FROM {column}) = {m}" for m in range(1, 13)]


def _month_ranges(column: str) -> list[str]:
    pairs = [(a, b) for a in range(1, 13) for b in range(a, 13)]
    return [f"EXTRACT(month FROM {column}) BETWEEN {a} AND {b}" for a, b in pairs]


def shop(cuts: tuple[int, ...]) -> World:
    """Fifty thousand customers' sales by age and month: four groups, or ranges of fifteen."""
    starts = (18, *cuts, 90)
    return World(
        catalog=f"""{_HEAD.format(name="shop", files=_SALES, people="customer", key="customer_id")}
tables:
  customer: {{role: dimension, key: customer_id, private: true, columns: {{
    age: {{type: int, lower: 18, upper: 89, out_of_domain: drop, cuts: {list(cuts)}, REPORTED}}}}}}
  sales: {{role: fact, foreign_keys: {{customer_id: {{references: customer, on_missing: drop}}}}, max_ids: 10,
    columns: {{
    amount: {{type: decimal, scale: 2, lower: 0, upper: 200, measure: true}},
    sold_on: {{type: date, lower: 2025-01-01, upper: 2025-12-31, out_of_domain: drop}}}}}}
views:
  v: {{of: sales, axes: [customer.age, {{axis: sales.sold_on, cuts: {{width: month}}}}], measures: MEASURES}}
""",
        column="age", measure="amount", summed="sales.amount", people="customer",
        key="customer_id", joined="sales JOIN customer USING (customer_id)",
        starts=starts,
        boxes=_cells(starts, _months("sold_on")) if cuts == FOUR else _ranges(starts, _month_ranges("sold_on")),
        write=lambda folder: write_star(folder, make_star(SEED, PEOPLE, 200)),
        facts="SELECT customer_id::VARCHAR AS unit, age, 1.0 AS w, amount::DOUBLE AS amount, sold_on "
        "FROM 'ROOT/sales.parquet' JOIN 'ROOT/customer.parquet' USING (customer_id)",
    )  # fmt: skip


def foodmart(data: Path) -> World:
    """FoodMart's sales of 1997 by income of eight levels and month; a customer's rows weigh min(1, 10 / rows)."""
    order = ["$10K", "$30K", "$50K", "$70K", "$90K", "$110K", "$130K", "$150K"]
    levels = " ".join(
        f"WHEN split_part(yearly_income, ' ', 1) = '{word}' THEN {i}" for i, word in enumerate(order)
    )

    tables = {
        "customer": f"SELECT *, CASE {levels} END AS income FROM '{data}/customer.parquet'",
        "sales": f"SELECT customer_id, the_date AS sold_on, store_sales FROM '{data}/sales_fact_1997.parquet' "
        f"JOIN '{data}/time_by_day.parquet' USING (time_id)",
    }
    starts = tuple(range(9))
    return World(
        catalog=f"""{_HEAD.format(name="foodmart", files=_SALES, people="customer", key="customer_id")}
tables:
  customer: {{role: dimension, key: customer_id, private: true, columns: {{
    income: {{type: int, lower: 0, upper: 7, out_of_domain: drop, REPORTED}}}}}}
  sales: {{role: fact, foreign_keys: {{customer_id: {{references: customer, on_missing: drop}}}}, max_ids: 10,
    bounding: weight, columns: {{store_sales: {{type: decimal, scale: 2, lower: 0, upper: 24, measure: true}},
    sold_on: {{type: date, lower: 1997-01-01, upper: 1997-12-31, out_of_domain: drop}}}}}}
views:
  v: {{of: sales, axes: [customer.income, {{axis: sales.sold_on, cuts: {{width: month}}}}], measures: MEASURES}}
""",
        column="income", measure="store_sales", summed="sales.store_sales", people="customer",
        key="customer_id",
        joined="sales JOIN customer USING (customer_id)", starts=starts,
        boxes=_ranges(starts, _month_ranges("sold_on")),
        write=lambda folder: write_tables(folder, tables),
        facts="SELECT customer_id::VARCHAR AS unit, income, "
        "least(1.0, 10.0 / count(*) OVER (PARTITION BY customer_id)) AS w, store_sales, sold_on "
        "FROM 'ROOT/sales.parquet' JOIN 'ROOT/customer.parquet' USING (customer_id)",
    )  # fmt: skip


def adult(data: Path) -> World:
    """Adult's people by age of fifteen groups, hours a week and sex."""
    starts = (17, *FIFTEEN, 91)

    person = f"""SELECT row_number() OVER () AS id, age, hours_per_week AS hours, sex, education_num FROM read_parquet(
        ['{data}/adult_train.parquet', '{data}/adult_test.parquet'], union_by_name = true)"""
    hours = [(a, b) for a in range(1, 92, 10) for b in range(a + 9, 101, 10)]
    central = [f"hours BETWEEN {a} AND {b}{sex}" for a, b in hours
               for sex in ("", " AND sex = 'Male'", " AND sex = 'Female'")]  # fmt: skip
    return World(
        catalog=f"""{_HEAD.format(name="adult", files="person: person.parquet", people="person", key="id")}
tables:
  person: {{role: dimension, key: id, private: true, columns: {{
    age: {{type: int, lower: 17, upper: 90, out_of_domain: drop, cuts: {list(FIFTEEN)}, REPORTED}},
    education_num: {{type: int, lower: 1, upper: 16, measure: true}},
    hours: {{type: int, lower: 1, upper: 100, out_of_domain: drop, cuts: {{width: 10}}}},
    sex: {{type: string, categories: [Male, Female], out_of_domain: drop}}}}}}
views:
  v: {{of: person, axes: [person.age, person.hours, person.sex], measures: MEASURES}}
""",
        column="age", measure="education_num", summed="person.education_num", people="person", key="id",
        joined="person", starts=starts,
        boxes=_ranges(starts, central), write=lambda folder: write_tables(folder, {"person": person}),
        facts="SELECT id::VARCHAR AS unit, age, 1.0 AS w, education_num, hours, sex FROM 'ROOT/person.parquet'",
    )  # fmt: skip
