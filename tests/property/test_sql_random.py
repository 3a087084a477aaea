"""Random statements over the fixture star equal DuckDB on the raw rows: there is no noise to hide behind."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.releases import Twins

pytestmark = pytest.mark.long

VARIANCE = 1e-18
FROM = "FROM sales s {join} JOIN customer c ON s.customer_id = c.customer_id"
TREND = "FROM sales s JOIN product p ON s.product_id = p.product_id JOIN category k ON p.category_id = k.category_id"


age = st.integers(17, 41)
region = st.sampled_from(["north", "south", "east", "west", "nowhere"])
AGE_TEST = st.one_of(
    st.builds("c.age BETWEEN {} AND {}".format, age, age),
    st.builds("c.age {} {}".format, st.sampled_from(["<", "<=", ">", ">=", "=", "<>"]), age),
    st.builds("{} > age".format, age),
    st.builds("c.age IN ({}, {}, {})".format, age, age, age),
    st.builds("c.age % {} = 1".format, st.integers(2, 5)),
    st.builds("(CASE WHEN c.age < {} THEN 1 ELSE 2 END) = 1".format, age),
)
REGION_TEST = st.one_of(
    st.builds("region = '{}'".format, region),
    st.builds("c.region IN ('{}', '{}')".format, region, region),
    st.builds("region LIKE '%{}%'".format, st.sampled_from(["o", "st", "x"])),
    st.sampled_from(["c.region IS NULL", "region IS NOT NULL", "COALESCE(region, 'none') = 'none'"]),
)
DAY_TEST = st.one_of(
    st.builds("s.sold_on >= DATE '2025-01-01' + INTERVAL {} DAY".format, st.integers(0, 95)),
    st.builds("EXTRACT(MONTH FROM sold_on) = {}".format, st.integers(1, 4)),
    st.builds("sold_on < CAST('2025-0{}-15' AS TIMESTAMP)".format, st.integers(1, 4)),
)
CATEGORY_TEST = st.one_of(
    st.builds("department = '{}'".format, st.sampled_from(["food", "drinks"])),
    st.builds(
        "category {} '{}'".format, st.sampled_from(["<", ">=", "<>"]), st.sampled_from(["cake", "jam", "tea"])
    ),
)


def boolean(leaf: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Nested AND, OR and NOT."""
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=5,
    )


PEOPLE = boolean(st.one_of(AGE_TEST, REGION_TEST))
TIMES = boolean(st.one_of(DAY_TEST, CATEGORY_TEST))
MEASURES = st.sampled_from([
    "COUNT(*)", "SUM(amount)", "SUM(qty)", "COUNT(qty)", "SUM(s.amount) - COUNT(*)", "SUM(1)", "SUM(2 * amount)",
    "AVG(qty)", "SUM(amount) / NULLIF(COUNT(*), 0)", "SUM(CASE WHEN age < 25 THEN amount ELSE 0 END)",
    "COUNT(*) FILTER (WHERE region = 'north' OR age > 30)", "COUNT(CASE WHEN age > 20 THEN 1 END)", "COUNT(region)",
    "SUM(CASE WHEN age < 25 THEN 1 WHEN age < 30 THEN 2 ELSE 3 END)", "COALESCE(SUM(qty), 0)",
])  # fmt: skip
GROUPS = st.sampled_from(
    ["", "region", "age", "age / 5", "region, age > 25", "CASE WHEN age < 30 THEN 'young' END"]
)
TIME_GROUPS = st.sampled_from(
    ["", "department", "DATE_TRUNC('month', sold_on)", "category, EXTRACT(YEAR FROM sold_on)"]
)


def statement(source: str, where: str, measures: list[str], groups: str, having: bool) -> str:
    """The statement's text."""
    items = [f"{measure} AS m{i}" for i, measure in enumerate(measures)]
    keys = [f"{key} AS g{i}" for i, key in enumerate(split(groups))]
    text = f"SELECT {', '.join([*keys, *items])} {source} WHERE {where}"
    text += f" GROUP BY {', '.join(str(i + 1) for i in range(len(keys)))}" if keys else ""
    return text + (" HAVING COUNT(*) >= 3" if having and keys else "")


def split(groups: str) -> list[str]:
    """The group expressions; the commas here are outside of brackets, but for DATE_TRUNC's."""
    if not groups or "DATE_TRUNC" in groups:
        return [groups] if groups else []
    return [part.strip() for part in groups.split(",")]


def same(text: str, star: Twins, keys: int) -> None:
    """Compare row by row; domain groups that no row falls into are not in the raw answer."""
    answerer, raw = star
    want = {row[:keys]: row[keys:] for row in raw.execute(text).fetchall()}
    answer = answerer.query(text)
    got = {row[:keys]: row[keys:] for row in answer.rows}
    low, high = ({row[:keys]: end[keys:] for row, end in zip(answer.rows, ends, strict=True)}
                 for ends in answer.interval_rows())  # fmt: skip
    perhaps = any("unlisted values" in note for note in answer.notes)
    for key, values in want.items():
        if key not in got and None in key and perhaps:
            continue  # values beyond the bounds are NULL there, and may or may not be meant here
        assert key in got, (text, key, list(got))
        for exact, value, least, most in zip(values, got[key], low[key], high[key], strict=True):
            held = perhaps and None not in (exact, least, most) and least - 1e-6 <= exact <= most + 1e-6
            assert close(exact, value) or held, (text, key, values, got[key])
    for key in set(got) - set(want) if not perhaps else ():
        assert all(value is None or abs(value) < 1e-5 for value in got[key]), (text, key, got[key])


def close(exact: Any, value: Any) -> bool:
    """SUM over no row is NULL in SQL and 0 here: a release cannot tell an empty group from a small one."""
    if exact is None:
        return value is None or abs(value) < 1e-5
    return value is not None and math.isclose(float(exact), float(value), rel_tol=1e-7, abs_tol=1e-5)


@given(
    where=PEOPLE,
    measures=st.lists(MEASURES, min_size=1, max_size=3),
    groups=GROUPS,
    having=st.booleans(),
    left=st.booleans(),
)
def test_people(
    star: Twins,
    where: str,
    measures: list[str],
    groups: str,
    having: bool,
    left: bool,
) -> None:
    text = statement(FROM.format(join="LEFT" if left else ""), where, measures, groups, having)
    same(text, star, len(split(groups)))


@given(
    where=TIMES,
    measures=st.lists(st.sampled_from(["COUNT(*)", "SUM(amount)", "AVG(amount)"]), min_size=1, max_size=2),
    groups=TIME_GROUPS,
)
def test_times(star: Twins, where: str, measures: list[str], groups: str) -> None:
    same(statement(TREND, where, measures, groups, False), star, len(split(groups)))
