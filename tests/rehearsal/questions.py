"""Questions about a made-up star as people ask them: one template a kind, with constants drawn from the rows.

A template states how many of its columns are keys and what each other column is:

| letter | a column of | without rows |
|---|---|---|
| `n` | counts | 0 |
| `s` | sums | 0 |
| `p` | shares, between 0 and 1 | no case |
| `a` | anything else | no case |
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from tests.rehearsal.generator import CHANNELS, REGIONS, Knobs, Star

CATEGORIES = {
    "visit": ("visit.channel", "person.region", "place.kind", "visit.online", "person.member"),
    "loan": ("loan.genre", "person.region", "person.member"),
    "item": ("item.colour", "visit.channel", "person.region"),
}
MEASURES = {"visit": ("amount", "pieces"), "loan": ("fee",), "item": ("price",)}
TIMES = {"visit": "visit.happened", "loan": "loan.taken_on", "item": "visit.happened"}
KEYS = {
    ("visit", "person"): "JOIN person ON visit.person_id = person.person_id",
    ("loan", "person"): "JOIN person ON loan.person_id = person.person_id",
    ("visit", "place"): "JOIN place ON visit.place_id = place.place_id",
    (
        "visit",
        "area",
    ): "JOIN place ON visit.place_id = place.place_id JOIN area ON place.area_id = area.area_id",
    ("visit", "home"): "JOIN person ON visit.person_id = person.person_id "
    "JOIN place AS home ON person.place_id = home.place_id",
    ("item", "visit"): "JOIN visit ON item.visit_id = visit.visit_id",
    ("item", "person"): "JOIN visit ON item.visit_id = visit.visit_id "
    "JOIN person ON visit.person_id = person.person_id",
}


class Question(NamedTuple):
    """One statement.

    Args:
        kind: the template's name.
        sql: what is asked.
        values: a letter for each column behind the keys.
        keys: how many columns come first as keys.
        truth: the statement without LIMIT and HAVING, where it has them.
    """

    kind: str
    sql: str
    values: str
    keys: int = 0
    truth: str = ""


@dataclass(frozen=True)
class Draw:
    """What a template draws from.

    Args:
        knobs: of the star.
        database: its rows.
        rng: of constants.
    """

    knobs: Knobs
    database: duckdb.DuckDBPyConnection
    rng: np.random.Generator

    @property
    def facts(self) -> tuple[str, ...]:
        """Tables of events that the star has."""
        return (
            "visit",
            *(["loan"] if self.knobs.second else []),
            *(["item"] if self.knobs.child else []),
        )

    def one(self, choices: Sequence[str]) -> str:
        """One of some words."""
        return choices[int(self.rng.integers(len(choices)))]

    def fact(self) -> str:
        """A table of events, mostly `visit`."""
        return self.one(("visit", *self.facts))

    def event(self) -> str:
        """A table of events that belong to people."""
        return self.one([fact for fact in self.facts if fact != "item"])

    def category(self, of: str) -> str:
        """A column with few values that a fact reaches."""
        return self.one(CATEGORIES[of])

    def grouped(self) -> tuple[str, str]:
        """A table of events, and a column with few values that it reaches."""
        of = self.fact()
        return of, self.category(of)

    def measure(self, of: str) -> str:
        """A column to sum."""
        return f"{of}.{self.one(MEASURES[of])}"

    def value(self, column: str) -> str:
        """A value that the column has, as SQL."""
        table, name = column.split(".")
        found = self.database.execute(
            f"SELECT DISTINCT {name} FROM {table} WHERE {name} IS NOT NULL ORDER BY 1"
        ).fetchall()
        value = found[int(self.rng.integers(len(found)))][0]
        return f"'{value}'" if isinstance(value, str) else str(value).lower()

    def quantile(self, column: str, low: float, high: float) -> float:
        """A number or time between two quantiles of a column."""
        table, name = column.split(".")
        share = float(self.rng.uniform(low, high))
        return self.database.execute(f"SELECT quantile_disc({name}, {share}) FROM {table}").fetchall()[0][0]

    def day(self, of: str, low: float = 0.2, high: float = 0.8) -> str:
        """A day of a fact, as SQL."""
        column = TIMES[of]
        return f"DATE '{str(self.quantile(column, low, high))[:10]}'"


def source(of: str, *columns: str) -> str:
    """FROM and the joins that reach some columns."""
    joins = {table: KEYS[of, table] for column in columns if (table := column.split(".")[0]) != of}
    parts = list(dict.fromkeys(part for join in joins.values() for part in _joins(join)))
    return " ".join([f"FROM {of}", *parts])


def _joins(text: str) -> list[str]:
    return [f"JOIN {part}" for part in text.removeprefix("JOIN ").split(" JOIN ")]


Asked = tuple[str, str] | tuple[str, str, int] | tuple[str, str, int, str]
"""What a template asks: `Question` behind its kind."""
Template = Callable[[Draw], Asked | None]
TEMPLATES: dict[str, Template] = {}


def template(make: Template) -> Template:
    """Register a template under its function's name, which is the kind of its questions."""
    TEMPLATES[make.__name__] = make
    return make


def ask(
    star: Star, database: duckdb.DuckDBPyConnection, seed: int, count: int | None = None
) -> list[Question]:
    """Questions about a star.

    Args:
        star: the star.
        database: its rows.
        seed: of kinds and constants.
        count: so many kinds at random; all by default.
    """
    rng = np.random.default_rng([seed, 3])
    names = sorted(TEMPLATES)
    chosen = names if count is None else sorted(rng.choice(names, min(count, len(names)), replace=False))
    drawn = {
        name: TEMPLATES[name](Draw(star.knobs, database, np.random.default_rng([seed, 4, names.index(name)])))
        for name in chosen
    }
    return [Question(name, *asked) for name, asked in drawn.items() if asked is not None]


@template
def by_two(d: Draw) -> Asked | None:
    of = d.fact()
    a, b = d.category(of), d.category(of)
    if a == b:
        return None
    return f"SELECT {a}, {b}, COUNT(*) AS n {source(of, a, b)} GROUP BY {a}, {b}", "n", 2


@template
def filter_share(d: Draw) -> Asked:
    of = d.fact()
    a, b = d.category(of), CATEGORIES[of][0]
    where = f"{b} = {d.value(b)}"
    return (
        f"SELECT {a}, COUNT(*) FILTER (WHERE {where}) * 1.0 / COUNT(*) AS p {source(of, a, b)} GROUP BY {a}",
        "p",
        1,
    )


@template
def top(d: Draw) -> Asked:
    of = d.fact()
    c, m = CATEGORIES[of][0], d.measure(of)
    sql = f"SELECT {c}, SUM({m}) AS s {source(of, c)} GROUP BY {c}"
    return f"{sql} ORDER BY s DESC LIMIT 3", "s", 1, sql


@template
def having(d: Draw) -> Asked:
    of = d.fact()
    c = CATEGORIES[of][0]
    sql = f"SELECT {c}, COUNT(*) AS n {source(of, c)} GROUP BY {c}"
    most = d.database.execute(f"SELECT max(n) FROM ({sql})").fetchall()[0][0]
    return f"{sql} HAVING COUNT(*) > {most // 3}", "n", 1, sql


@template
def age_range(d: Draw) -> Asked:
    low, high = d.quantile("person.age", 0.1, 0.4), d.quantile("person.age", 0.5, 0.9)
    where = f"WHERE person.age BETWEEN {low} AND {high}"
    return f"SELECT COUNT(*) AS n {source('visit', 'person.age')} {where}", "n"


@template
def income_range(d: Draw) -> Asked:
    low = int(d.quantile("person.income", 0.2, 0.8)) + 3
    return f"SELECT COUNT(*) AS n FROM person WHERE person.income > {low}", "n"


@template
def money_range(d: Draw) -> Asked:
    low, high = d.quantile("visit.amount", 0.1, 0.4), d.quantile("visit.amount", 0.6, 0.95)
    where = f"WHERE visit.amount BETWEEN {low} AND {high}"
    return f"SELECT COUNT(*) AS n, SUM(visit.amount) AS s FROM visit {where}", "ns"


@template
def money_above(d: Draw) -> Asked:
    return (
        f"SELECT COUNT(*) AS n FROM visit WHERE visit.amount >= {d.quantile('visit.amount', 0.97, 0.998)}",
        "n",
    )


@template
def quarters(d: Draw) -> Asked:
    c = d.one(("visit.channel", "person.region"))
    return (
        (
            f"SELECT date_trunc('quarter', visit.happened) AS q, {c}, AVG(visit.amount) AS a "
            f"{source('visit', c)} GROUP BY 1, 2"
        ),
        "a",
        2,
    )


@template
def since(d: Draw) -> Asked:
    of = d.event()
    day = d.day(of)
    return f"SELECT COUNT(*) AS n, SUM({d.measure(of)}) AS s FROM {of} WHERE {TIMES[of]} >= {day}", "ns"


@template
def between_days(d: Draw) -> Asked:
    of = d.event()
    low, high = d.day(of, 0.1, 0.4), d.day(of, 0.5, 0.9)
    return f"SELECT COUNT(*) AS n FROM {of} WHERE {TIMES[of]} BETWEEN {low} AND {high}", "n"


@template
def median(d: Draw) -> Asked:
    of = d.fact()
    m = {"visit": "visit.amount", "loan": "loan.fee", "item": "item.price"}[of]
    return f"SELECT quantile_disc({m}, 0.5) AS a FROM {of}", "a"


@template
def difference(d: Draw) -> Asked:
    of, c = d.grouped()
    a, b, m = d.value(c), d.value(c), d.measure(of)
    return (
        f"SELECT AVG(CASE WHEN {c} = {a} THEN {m} END) - AVG(CASE WHEN {c} <> {a} THEN {m} END) AS a, "
        f"SUM(CASE WHEN {c} = {a} THEN {m} ELSE 0 END) - SUM(CASE WHEN {c} = {b} THEN {m} ELSE 0 END) AS s "
        f"{source(of, c)}"
    ), "as"


@template
def mean_over_groups(d: Draw) -> Asked:
    of = d.fact()
    c = CATEGORIES[of][0]
    return f"SELECT AVG(n) AS a FROM (SELECT {c}, COUNT(*) AS n {source(of, c)} GROUP BY {c})", "a"


@template
def groups_above(d: Draw) -> Asked:
    rows = d.database.execute("SELECT COUNT(*) FROM visit").fetchall()[0][0]
    return (
        f"SELECT COUNT(*) AS a FROM (SELECT visit.channel, COUNT(*) AS n FROM visit "
        f"GROUP BY visit.channel) WHERE n > {max(1, rows // 15)}"
    ), "a"


@template
def not_in(d: Draw) -> Asked:
    a, b = d.one(CHANNELS), d.one(CHANNELS)
    return (
        f"SELECT COUNT(*) AS n, AVG(visit.pieces) AS a FROM visit WHERE visit.channel NOT IN ('{a}', '{b}')",
        "na",
    )


@template
def unequal(d: Draw) -> Asked:
    return (
        f"SELECT COUNT(*) AS n {source('visit', 'person.region')} WHERE person.region <> '{d.one(REGIONS)}'",
        "n",
    )


@template
def two_hops(d: Draw) -> Asked:
    table = "area" if d.knobs.snowflake else "place"
    return (
        f"SELECT {table}.zone, SUM(visit.amount) AS s, COUNT(*) AS n {source('visit', f'{table}.zone')} GROUP BY 1",
        "sn",
        1,
    )


@template
def halves(d: Draw) -> Asked:
    day = d.day("visit", 0.4, 0.6)
    return (
        f"SELECT visit.happened < {day} AS early, COUNT(*) AS n, AVG(visit.amount) AS a FROM visit GROUP BY 1",
        "na",
        1,
    )


NEEDS = {
    "zones": "snowflake",
    "hour": "stamps",
    "ratio_of_tables": "second",
    "counts_of_tables": "second",
    "child": "child",
    "homes": "homes",
    "home_people": "homes",
    "time_of_day": "stamps",
}
"""Knobs without which a star has no columns for a question."""

STATEMENTS = Path(__file__).with_name("questions.txt").read_text(encoding="utf-8")
"""Kind, letters, keys and SQL of a question a line, or more lines that are indented.

| place | filled with |
|---|---|
| `{fact}`, `{event}` | a table of events, or one of those that belong to people |
| `{c}`, `{from}` | a column with few values that it reaches, FROM and the joins to it |
| `{time}`, `{m}`, `{value}` | its moments, a column to sum, a value of `{c}` |
| `{value a.b}`, `{a b}` | a value of that column, FROM a and the joins to b |
"""


def _filled(kind: str, letters: str, keys: str, sql: str) -> Template:
    """The template of a statement."""

    def make(d: Draw) -> Asked | None:
        if kind in NEEDS and not getattr(d.knobs, NEEDS[kind]):
            return None
        drawn = {}
        if re.search(r"{\w+}", sql):
            of = d.event() if "{event}" in sql else d.fact()
            drawn = {"fact": of, "event": of, "time": TIMES[of]}
        if "{c}" in sql:
            drawn |= {"c": (c := d.category(of)), "from": source(of, c)}

        def fill(place: re.Match[str]) -> str:
            word, _, more = place[1].partition(" ")
            if word == "value":
                return d.value(more or drawn["c"])
            if word == "m":
                return d.measure(drawn["fact"])
            return source(word, f"{more}.") if more else drawn[word]

        return re.sub(r"{(.*?)}", fill, sql), letters, int(keys)

    return make


for line in re.sub(r"\n +", " ", STATEMENTS).splitlines():
    kind, *asked = line.split(" | ", 3)
    TEMPLATES[kind] = _filled(kind, *asked)
