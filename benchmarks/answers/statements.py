"""Random statements over the clinic, in forms that people and BI tools send, and as DuckDB reads them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.answers.clinic import REASONS, REGIONS, SPECIALTIES


class Statement(NamedTuple):
    """One statement.

    Args:
        form: its kind.
        text: as it is asked.
        keys: how many of its first columns name a group; all groups of the domain are shown, by DuckDB those with rows.
        dialect: it is written in; DuckDB answers what `plain` says in the same words.
        plain: the same for DuckDB, where it is spelled otherwise there.
        last: whether only its last column is compared, as a sorted list.
        chosen: the groups of which a LIMIT takes some, and what HAVING says of those that it may take.
    """

    form: str
    text: str
    keys: int = 0
    dialect: str = ""
    plain: str = ""
    last: bool = False
    chosen: tuple[str, str] = ("", "")


class Fact(NamedTuple):
    """A fact with what one view, or several, know of it together.

    Args:
        name: its table.
        joins: dimension -> how it is joined, and what must be joined before.
        tests: conditions on columns that one view has together, by the joins that they need.
        keys: the same for groups.
        sums: measures of that view.
    """

    name: str
    joins: dict[str, tuple[str, str]]
    tests: dict[str, Callable[[random.Random], str]]
    keys: dict[str, tuple[str, ...]]
    sums: tuple[str, ...]


def _of(column: str, values: tuple[str, ...]) -> Callable[[random.Random], str]:
    def test(draw: random.Random) -> str:
        word, other = draw.choice(values), draw.choice(values)
        return draw.choice([
            f"{column} = '{word}'", f"{column} <> '{word}'", f"{column} IN ('{word}', '{other}')",
            f"{column} NOT IN ('{word}', '{other}')", f"{column} LIKE '%{word[1:3]}%'", f"{column} IS NULL",
            f"{column} IS NOT NULL", f"UPPER({column}) = '{word.upper()}'", f"SUBSTRING({column}, 1, 1) = '{word[0]}'",
            f"LENGTH({column}) > {len(word) - 1}", f"{column} || 'x' = '{word}x'", f"POSITION('o' IN {column}) > 0",
            f"COALESCE({column}, 'none') <> '{word}'", f"({column} = '{word}' OR {column} = '{other}')",
            f"{column} > '{word}'", f"STARTS_WITH({column}, '{word[:2]}')", f"REGEXP_MATCHES({column}, '{word[1:3]}')",
        ])  # fmt: skip

    return test


def _number(column: str, low: int, high: int) -> Callable[[random.Random], str]:
    def test(draw: random.Random) -> str:
        a, b = sorted((draw.randint(low, high), draw.randint(low, high)))
        return draw.choice([
            f"{column} BETWEEN {a} AND {b}", f"{column} < {a}", f"{column} >= {b}", f"NOT {column} = {a}",
            f"{column} IN ({a}, {b})", f"{column} % 3 = 1", f"{column} / 2 > {a}", f"-{column} < -{a}",
            f"{column} // 7 = {a // 7}", f"ABS({column} - {a}) < 4", f"CASE WHEN {column} > {a} THEN 1 ELSE 0 END = 1",
            f"CAST({column} / 4.0 AS INT) = {a // 4}", f"({column} < {a} OR {column} > {b})",
        ])  # fmt: skip

    return test


def _day(column: str) -> Callable[[random.Random], str]:
    def test(draw: random.Random) -> str:
        a = f"2024-0{draw.randint(1, 6)}-{draw.randint(10, 28)}"
        return draw.choice([
            f"{column} >= DATE '{a}'", f"{column} < CAST('{a}' AS TIMESTAMP)", f"{column} = '{a}'",
            f"EXTRACT(MONTH FROM {column}) = {draw.randint(1, 6)}", f"{column} - DATE '{a}' > 20",
            f"DATE_TRUNC('month', {column}) = DATE '{a[:8]}01'", f"DAYOFWEEK({column}) = {draw.randint(0, 6)}",
            f"{column} BETWEEN DATE '{a}' AND DATE '{a}' + INTERVAL 30 DAY", f"MONTH({column}) IN (2, 3)",
            f"DATE_DIFF('month', {column}, DATE '{a}') = 1",
        ])  # fmt: skip

    return test


AGE, REGION = _number("p.age", 20, 59), _of("p.region", REGIONS)
PEOPLE = {"p": ("JOIN patient p ON {f}.patient_id = p.patient_id", "")}
SNOW = {
    "d": ("JOIN doctor d ON {f}.doctor_id = d.doctor_id", ""),
    "w": ("JOIN ward w ON d.ward_id = w.ward_id", "d"),
    "h": ("JOIN hospital h ON w.hospital_id = h.hospital_id", "w"),
}
SNOW_TESTS = {
    "d": _of("d.specialty", SPECIALTIES), "d.grade": _number("d.grade", 0, 4), "w": _number("w.floor", 0, 3),
    "w.ward": _of("w.ward", ("ward A", "ward B", "ward C", "ward F")), "h": _of("h.city", ("Ulm", "Bonn", "Kiel")),
    "h.beds": _number("h.beds", 50, 350),
}  # fmt: skip
SNOW_KEYS = {
    "d": ("d.specialty", "d.grade", "d.grade > 2", "d.grade // 2", "d.doctor_id"),
    "w": ("w.ward", "w.floor", "w.floor % 2"),
    "h": ("h.city", "h.beds", "h.beds / 100", "SUBSTRING(h.city, 1, 1)"),
}
DECLARED = {"p.age": "p.age IS NOT NULL", "p.region": "p.region IS DISTINCT FROM '(other)'",
            "v.reason": "v.reason IS DISTINCT FROM '(other)'"}  # fmt: skip
"""Rows with a value of the domain, or a declared NULL: LIMIT takes no group of other rows alone."""
PEOPLE_KEYS = ("p.region", "COALESCE(p.region, 'none')")
AGES = ("p.age", "p.age // 10", "p.age / 8", "p.age > 40", "CASE WHEN p.age < 30 THEN 'young' END")

FACTS = (
    Fact("visit", PEOPLE, {"p": AGE, "p.region": REGION}, {"p": (*PEOPLE_KEYS, *AGES)}, ("v.cost", "v.minutes")),
    Fact("visit", PEOPLE | SNOW, {"p.region": REGION, "v.reason": _of("v.reason", REASONS), **SNOW_TESTS},
         {"p": PEOPLE_KEYS, "v": ("v.reason",), **SNOW_KEYS}, ("v.cost", "v.minutes")),
    Fact("visit", {"d": SNOW["d"]}, {"v.day": _day("v.seen_on"), "d": SNOW_TESTS["d"]},
         {"d": ("d.specialty",), "v": ("DATE_TRUNC('month', v.seen_on)", "EXTRACT(MONTH FROM v.seen_on)", "v.seen_on")},
         ("v.minutes",)),
    Fact("bill", PEOPLE | SNOW, {"p.region": REGION, **SNOW_TESTS}, {"p": PEOPLE_KEYS, "b": ("b.paid",), **SNOW_KEYS},
         ("b.amount",)),
    Fact("bill", PEOPLE, {"p.region": REGION, "b.day": _day("b.sent_on")},
         {"p": PEOPLE_KEYS, "b": ("DATE_TRUNC('month', b.sent_on)", "MONTH(b.sent_on)")}, ("b.amount",)),
    Fact("stay", PEOPLE | {"w": ("JOIN ward w ON s.ward_id = w.ward_id", ""), "h": SNOW["h"]},
         {"p.region": REGION, **{k: v for k, v in SNOW_TESTS.items() if k[0] in "wh"}},
         {"p": PEOPLE_KEYS, "w": SNOW_KEYS["w"], "h": SNOW_KEYS["h"]}, ("s.nights",)),
)  # fmt: skip


class Maker:
    """Statements, one after the other."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def statement(self) -> Statement:
        """The next one, of any form."""
        return getattr(self, f"_{self.draw.choice(FORMS)}")()  # type: ignore[no-any-return]

    def _fact(self) -> Fact:
        return self.draw.choice(FACTS)

    def _source(
        self, fact: Fact, needs: set[str], left: bool = False, comma: bool = False
    ) -> tuple[str, list[str]]:
        """FROM with all joins that are needed and sometimes more; conditions of comma joins."""
        alias = fact.name[0]
        wanted = {need for need in needs if need in fact.joins}
        wanted |= {name for name in fact.joins if self.draw.random() < 0.25}
        while more := {fact.joins[name][1] for name in wanted} - wanted - {""}:
            wanted |= more
        joins = [fact.joins[name][0].format(f=alias) for name in fact.joins if name in wanted]
        if comma:
            pairs = [join.removeprefix("JOIN ").split(" ON ") for join in joins]
            return f"FROM {', '.join([f'{fact.name} {alias}', *(table for table, _ in pairs)])}", [
                on for _, on in pairs
            ]
        word = "LEFT " if left else ""
        return f"FROM {fact.name} {alias} {' '.join(word + join for join in joins)}".strip(), []

    def _where(self, fact: Fact, most: int = 3) -> tuple[str, set[str]]:
        """A condition, and the joins that it needs."""
        names = [self.draw.choice(list(fact.tests)) for _ in range(self.draw.randint(0, most))]
        parts = [f"NOT ({test})" if self.draw.random() < 0.15 else test
                 for test in (fact.tests[name](self.draw) for name in names)]  # fmt: skip
        text = ""
        for part in parts:
            text = f"({text} {self.draw.choice(['AND', 'AND', 'OR'])} {part})" if text else part
        return text, {name.partition(".")[0] for name in names}

    def _values(self, fact: Fact, many: int = 2) -> tuple[list[str], set[str]]:
        """Aggregates, and the joins that they need."""
        found, needs = [], set()
        for _ in range(self.draw.randint(1, many)):
            name = self.draw.choice(list(fact.tests))
            test, measure = fact.tests[name](self.draw), self.draw.choice(fact.sums)
            plain = ["COUNT(*)", f"SUM({measure})", f"COUNT({measure})", f"AVG({measure})", f"SUM(2 * {measure})",
                     f"SUM({measure}) / NULLIF(COUNT(*), 0)"]  # fmt: skip
            tested = [f"COUNT(*) FILTER (WHERE {test})", f"SUM({measure}) FILTER (WHERE {test})",
                      f"SUM(CASE WHEN {test} THEN {measure} ELSE 0 END)", f"COUNT(CASE WHEN {test} THEN 1 END)",
                      f"AVG(CASE WHEN {test} THEN {measure} END)"]  # fmt: skip
            if self.draw.random() < 0.5:
                found.append(self.draw.choice(plain))
            else:
                found.append(self.draw.choice(tested))
                needs.add(name.partition(".")[0])
        return found, needs

    def _grouped(self, fact: Fact, most: int = 2) -> tuple[list[str], set[str]]:
        names = self.draw.sample(list(fact.keys), min(self.draw.randint(1, most), len(fact.keys)))
        return [self.draw.choice(fact.keys[name]) for name in names], set(names)

    def _block(self, fact: Fact, keys: list[str], values: list[str], needs: set[str], group: str, left: bool = False,
               comma: bool = False, tail: str = "") -> str:  # fmt: skip
        where, more = self._where(fact)
        source, on = self._source(fact, needs | more, left, comma)
        tests = [*on, *([where] if where else [])]
        items = [
            *(f"{key} AS g{i}" for i, key in enumerate(keys)),
            *(f"{v} AS m{i}" for i, v in enumerate(values)),
        ]
        text = f"SELECT {', '.join(items)} {source}" + (f" WHERE {' AND '.join(tests)}" if tests else "")
        return text + (f" GROUP BY {group}" if group else "") + tail

    def _simple(self, left: bool = False, comma: bool = False, most: int = 2) -> tuple[str, int]:
        fact = self._fact()
        keys, needs = self._grouped(fact, most) if most else ([], set())
        values, more = self._values(fact)
        by = self.draw.choice([", ".join(keys), ", ".join(f"g{i}" for i in range(len(keys))),
                               ", ".join(str(i + 1) for i in range(len(keys)))])  # fmt: skip
        return self._block(fact, keys, values, needs | more, by, left, comma), len(keys)

    def _total(self) -> Statement:
        return Statement("total", self._simple(most=0)[0])

    def _groups(self) -> Statement:
        return Statement("groups", *self._simple())

    def _left(self) -> Statement:
        return Statement("left join", *self._simple(left=True))

    def _comma(self) -> Statement:
        return Statement("comma join", *self._simple(comma=True))

    def _sets(self) -> Statement:
        fact = self._fact()
        keys, needs = self._grouped(fact)
        values, more = self._values(fact)
        listed = ", ".join(keys)
        by = self.draw.choice([f"ROLLUP ({listed})", f"CUBE ({listed})", f"GROUPING SETS (({listed}), ())",
                               f"ROLLUP ({', '.join(f'g{i}' for i in range(len(keys)))})"])  # fmt: skip
        level = [f"GROUPING({key}) AS l{i}" for i, key in enumerate(keys)]
        text = self._block(fact, keys, values, needs | more, by)
        items = [*(f"{key} AS g{i}" for i, key in enumerate(keys))]
        return Statement(
            "sets", text.replace(", ".join(items), ", ".join([*items, *level]), 1), 2 * len(keys)
        )

    def _derived(self) -> Statement:
        inner, keys = self._simple()
        shown = [*(f"g{i}" for i in range(keys)), "m0 * 2 AS v", "m0 * 3 - m0"]
        return Statement("derived", f"SELECT {', '.join(shown)} FROM ({inner}) AS t", keys)

    def _outer_sum(self) -> Statement:
        inner, _ = self._simple()
        return Statement("sum of groups", f"SELECT SUM(m0) FROM ({inner}) AS t")

    def _common(self) -> Statement:
        inner, keys = self._simple()
        names = ", ".join(f"g{i}" for i in range(keys))
        return Statement(
            "cte", f"WITH t AS ({inner}) SELECT {names}, SUM(m0) AS s FROM t GROUP BY {names}", keys
        )

    def _having(self) -> Statement:
        inner, keys = self._simple()
        return Statement("having", f"{inner} HAVING COUNT(*) >= {self.draw.randint(1, 30)}", keys)

    def _top(self) -> Statement:
        inner, keys = self._simple()
        groups, names = f"{inner} HAVING COUNT(*) > 0.5", inner[: inner.rindex(" AS g")]
        stays = "".join(f" AND BOOL_OR({test})" for column, test in DECLARED.items() if column in names)
        text = f"SELECT m0 FROM ({{}}) AS t ORDER BY m0 DESC NULLS LAST LIMIT {self.draw.randint(1, 4)}"
        return Statement(
            "top", text.format(groups), keys, "", text.format(groups + stays), True, (groups, stays)
        )

    def _window(self) -> Statement:
        inner, keys = self._simple()
        call = self.draw.choice(["SUM(m0) OVER ()", "m0 / NULLIF(SUM(m0) OVER (), 0)"])
        names = ", ".join(f"g{i}" for i in range(keys))
        return Statement("window", f"SELECT {names}, {call} AS v FROM ({inner}) AS t", keys)

    def _union(self) -> Statement:
        (one, _), (other, _) = self._simple(most=0), self._simple(most=0)
        parts = (f"SELECT m0 FROM ({text}) AS t" for text in (one, other))
        return Statement("union", " UNION ALL ".join(parts))

    def _scalars(self) -> Statement:
        (one, _), (other, _) = self._simple(most=0), self._simple(most=0)
        first, second = (f"(SELECT m0 FROM ({text}) AS t)" for text in (one, other))
        c = f"COALESCE({first}, 0) - COALESCE({second}, 0)"
        return Statement("scalar subqueries", f"SELECT {first} AS a, {second} AS b, {c} AS c")

    def _member(self) -> Statement:
        """IN and EXISTS over a key, one hop or a chain, plain, negated and under OR."""
        alias, name, key = self.draw.choice([("v", "visit", "doctor_id"), ("b", "bill", "doctor_id")])
        joins, tests = [], []
        for table, on in (
            ("ward w", "d.ward_id = w.ward_id"),
            ("hospital h", "w.hospital_id = h.hospital_id"),
        ):
            if self.draw.random() < 0.6 and len(joins) == (table[0] == "h"):
                joins.append(f"JOIN {table} ON {on}")
        for letter, ready in (("d", True), ("w", bool(joins)), ("h", len(joins) > 1)):
            if ready and self.draw.random() < 0.5:
                tests.append(SNOW_TESTS[letter](self.draw))
        inside = f"FROM doctor d {' '.join(joins)}"
        if self.draw.random() < 0.5:
            where = f" WHERE {' AND '.join(tests)}" if tests else ""
            member = f"{alias}.{key} IN (SELECT d.doctor_id {inside}{where})"
        else:
            met = " AND ".join([f"d.doctor_id = {alias}.{key}", *tests])
            member = f"{self.draw.choice(['', 'NOT '])}EXISTS (SELECT 1 {inside} WHERE {met})"
        beside = f" {self.draw.choice(['AND', 'OR'])} {alias}.reason = 'cold'" if alias == "v" else ""
        source = f"SELECT COUNT(*) FROM {name} {alias} WHERE"
        return Statement("in and exists", f"{source} {member}{self.draw.choice(['', beside])}")

    def _partner(self) -> Statement:
        """Rows that find no partner, or one, at some hop."""
        column = self.draw.choice(["d.doctor_id", "w.ward_id", "h.hospital_id"])
        chain = " ".join(f"LEFT {SNOW[name][0].format(f='v')}" for name in "dwh")
        word = self.draw.choice(["IS NULL", "IS NOT NULL"])
        more = self.draw.choice(
            ["", " AND v.reason = 'check'", " OR v.reason = 'cold'", " AND d.specialty = 'eye'"]
        )
        return Statement(
            "partners", f"SELECT COUNT(*), SUM(v.minutes) FROM visit v {chain} WHERE {column} {word}{more}"
        )

    def _catalog(self) -> Statement:
        column, table = self.draw.choice([
            ("age", "patient"), ("specialty", "doctor"), ("floor", "ward"), ("city", "hospital"), ("beds", "hospital"),
            ("rooms", "home"), ("grade", "doctor"),
        ])  # fmt: skip
        call = self.draw.choice(
            [f"MIN({column})", f"MAX({column})", f"COUNT(DISTINCT {column})", f"MAX({column}) IS NULL"]
        )
        return Statement("catalog", f"SELECT {call} FROM {table}")

    def _blanks(self) -> Statement:
        """What Power BI sends for DISTINCTCOUNT: NULL is one value more."""
        column, table = self.draw.choice([("rooms", "home"), ("paid", "bill")])
        null = f"MAX(CASE WHEN {column} IS NULL THEN 1 ELSE 0 END)"
        return Statement("distinct count", f"SELECT COUNT(DISTINCT {column}) + {null} FROM {table}")

    def _quantile(self) -> Statement:
        at = self.draw.choice([0.1, 0.25, 0.5, 0.75, 0.9])
        column, table = self.draw.choice([("p.age", "visit v"), ("v.seen_on", "visit v")])
        join = "JOIN patient p ON v.patient_id = p.patient_id" if column == "p.age" else ""
        test = REGION(self.draw) if column == "p.age" else _day("v.seen_on")(self.draw)
        text = f"SELECT {{}} FROM {table} {join} WHERE {test}"
        asked = self.draw.choice(
            [f"QUANTILE_CONT({column}, {at})", f"PERCENTILE_CONT({at}) WITHIN GROUP (ORDER BY {column})"]
        )
        return Statement("quantile", text.format(asked), plain=text.format(f"QUANTILE_DISC({column}, {at})"))

    def _dialect(self) -> Statement:
        """Operations that another system spells in the same way and means otherwise."""
        source = "FROM visit v JOIN patient p ON v.patient_id = p.patient_id"
        dialect, key, plain = self.draw.choice([
            ("postgres", "p.age / 10", "p.age // 10"), ("postgres", "(p.age + 1) / 7 / 2", "(p.age + 1) // 7 // 2"),
            ("tsql", "p.age / 10", "p.age // 10"),
            ("sqlite", "p.age / 9", "p.age // 9"),
            ("trino", "p.age / 9", "p.age // 9"),
            ("postgres", "p.age / 10.0", "p.age / 10.0"), ("mysql", "p.age / 10", "p.age / 10"),
            ("tsql", "CAST(p.age / 8.0 AS INT)", "CAST(TRUNC(p.age / 8.0) AS INT)"),
            ("postgres", "CAST(p.age / 8.0 AS INT)", "CAST(p.age / 8.0 AS INT)"),
            ("spark", "CAST(p.age / 8.0 AS INT)", "CAST(TRUNC(p.age / 8.0) AS INT)"),
            ("postgres", "-p.age % 7", "-p.age % 7"),
            ("postgres", "SUBSTRING(p.region, 0, 3)", "SUBSTRING(p.region, 1, 2)"),
            ("postgres", "SUBSTRING(p.region FROM -1 FOR 4)", "SUBSTRING(p.region, 1, 2)"),
            ("postgres", "p.region ~ 'ou'", "REGEXP_MATCHES(p.region, 'ou')"),
            ("postgres", "p.region LIKE 'n\\orth'", "p.region = 'north'"),
        ])  # fmt: skip
        text = f"SELECT {{}} AS g, COUNT(*) AS n {source} GROUP BY 1"
        return Statement("dialects", text.format(key), 1, dialect, text.format(plain))

    def _time(self) -> Statement:
        dialect, key, plain = self.draw.choice([
            ("mysql", "DAYOFWEEK(seen_on)", "DAYOFWEEK(seen_on) + 1"),
            ("mysql", "WEEKDAY(seen_on)", "ISODOW(seen_on) - 1"),
            ("bigquery", "EXTRACT(DAYOFWEEK FROM seen_on)", "DAYOFWEEK(seen_on) + 1"),
            ("postgres", "EXTRACT(DOW FROM seen_on)", "DAYOFWEEK(seen_on)"),
            ("postgres", "EXTRACT(MONTH FROM seen_on) / 4", "EXTRACT(MONTH FROM seen_on) / 4"),
            ("tsql", "MONTH(seen_on) / 4", "MONTH(seen_on) // 4"),
            ("postgres", "DATE_TRUNC('month', seen_on)::timestamptz", "DATE_TRUNC('month', seen_on)::timestamp"),
            ("postgres", "(seen_on - DATE '2024-01-01') / 30", "(seen_on - DATE '2024-01-01') // 30"),
            ("postgres", "seen_on >= '2024-03-01 01:00:00+02'::timestamptz",
             "seen_on >= '2024-02-29 23:00:00'::timestamp"),
            ("tsql", "DATEPART(weekday, seen_on)", "DAYOFWEEK(seen_on) + 1"),
        ])  # fmt: skip
        text = "SELECT {} AS g, COUNT(*) AS n, SUM(minutes) AS m FROM visit GROUP BY 1"
        return Statement("times", text.format(key), 1, dialect, text.format(plain))

    def _wide(self) -> Statement:
        test = self.draw.choice(["age < 40", "region = 'north'", "age BETWEEN 30 AND 50", "region <> 'east'"])
        key = self.draw.choice(["region", "age // 10"])
        text = f"SELECT {key} AS g, COUNT(*) AS n, SUM(minutes) AS m FROM {{}} WHERE {test} GROUP BY 1"
        joined = "visit LEFT JOIN patient USING (patient_id)"
        return Statement("wide table", text.format("clinic_visit"), 1, "", text.format(joined))

    def _homes(self) -> Statement:
        """Two private hops."""
        left = self.draw.choice(["", "LEFT "])
        chain = f"{left}JOIN patient p USING (patient_id) {left}JOIN home h USING (home_id)"
        test = self.draw.choice([_number("h.rooms", 1, 6)(self.draw), AGE(self.draw), "h.rooms IS NOT NULL"])
        return Statement(
            "private hops",
            f"SELECT h.rooms AS g, COUNT(*) AS n FROM visit {chain} WHERE {test} GROUP BY 1",
            1,
        )

    def _average_of_groups(self) -> Statement:
        """Averages over groups of a column that has all of its values, and none else."""
        key = self.draw.choice(["d.specialty", "d.doctor_id"])
        inner = f"SELECT {key} AS g, COUNT(*) AS n FROM bill b JOIN doctor d ON b.doctor_id = d.doctor_id GROUP BY 1"
        return Statement("average of groups", f"SELECT AVG(n), COUNT(*), MAX(n), MIN(n) FROM ({inner}) AS t")


FORMS = tuple(name.removeprefix("_") for name in (
    "_total", "_groups", "_left", "_comma", "_sets", "_derived", "_outer_sum", "_common", "_having", "_top", "_window",
    "_union", "_scalars", "_member", "_partner", "_catalog", "_blanks", "_quantile", "_dialect", "_time", "_wide",
    "_homes",
    "_average_of_groups",
))  # fmt: skip
