"""Random statements under the rule of small numbers, each with another that says whom its numbers are of.

The second statement is asked of the same release without the rule. It yields the same keys and the rows behind each
number, so that what must be hidden follows from SQL and not from the code that hides it.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.errors import Error
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.agents import Statement, claimed_answer
from dpsql.interfaces.python.dbapi import Connection, InputPiece
from dpsql.interfaces.shell import ShellState, evaluate
from dpsql.interfaces.web.explore.answers import answer_values
from dpsql.results.render import render
from tests.interfaces.wire_client import Wire, values
from tests.interfaces_release import CATALOG, build
from tests.statements import sections

K, ROWS = 11, 20
"""The rule's number, and rows of one person that the shop counts."""
NEAR = 1e-6
"""People by which both statements may differ by rounding."""


def ruled_shop(folder: Path) -> Path:
    """The shop with the rule."""
    return build(folder, text=CATALOG.replace("delta: 0}", f"delta: 0, min_people: {K}}}"))


SALES = "sales JOIN customer USING (customer_id)"
GROUPS = ("region", "age", "age // 2", "age // 4", "age // 10")
FILTERS = ("age < 23", "age <> 30", "age >= 21", "region = 'east'", "age BETWEEN 30 AND 33", "age < 50")
NUMBERS = sections(Path(__file__).with_name("small_numbers.sql"))["numbers"]
"""A number, and the rows that it is of; {f} is a condition."""
OUTER = (  # keys, a number of the groups' n, the rows that it is of by their p, what follows FROM
    ("k, ", "n", "p", "ORDER BY 2 DESC LIMIT 7"),
    ("k, ", "n", "p", "WHERE n > 20 OR k IS NOT NULL"),
    ("k, ", "COALESCE(n, 0)", "p", ""),
    ("k, ", "SQRT(n * n) + 1", "p", ""),
    ("k, ", "CAST(n AS VARCHAR)", "p", ""),
    ("k, ", "CASE WHEN n > 50 THEN 1 ELSE 0 END", "p", ""),
    ("k, ", "DP_INTERVAL_HIGH(n * 3)", "p", ""),
    ("k, ", "n - LAG(n) OVER (ORDER BY k)", "LEAST(p, LAG(p) OVER (ORDER BY k))", ""),
    ("k, ", "n / SUM(n) OVER ()", "MIN(p) OVER ()", ""),
    ("k, ", "SUM(n) OVER (ORDER BY k)", "SUM(p) OVER (ORDER BY k)", ""),
    ("", "SUM(n)", "SUM(p)", ""),
    ("", "SUM(n)", "SUM(p)", "WHERE k IN (22, 24)"),
    ("k % 3 AS k, ", "SUM(n)", "SUM(p)", "GROUP BY k % 3"),
    ("k % 5 AS k, ", "SUM(n) + 5", "MIN(p)", "GROUP BY k % 5"),
    ("k % 5 AS k, ", "DP_STDERR(SUM(n))", "MIN(p)", "GROUP BY k % 5"),
    ("", "AVG(n)", "MIN(p)", ""),
    ("k % 3 AS k, ", "MAX(n)", "MIN(p)", "GROUP BY k % 3"),
    ("", "STDDEV(n)", "MIN(p)", ""),
    ("", "SUM(n) - SUM(n) FILTER (WHERE k <> 33)", "MIN(p) FILTER (WHERE k = 33)", ""),
    ("", "COUNT(n)", "NULL", ""),
)


class RuledStatement(NamedTuple):
    """A statement whose last column is judged, and one that yields the same keys and the rows of that number.

    Args:
        sql, rows: the two; `rows` is NULL where anything may be shown.
        plain: whether every number of enough people must be shown.
    """

    sql: str
    rows: str
    plain: bool


def statements(seed: int) -> Iterator[RuledStatement]:
    """Random ones without end."""
    dice = random.Random(seed)
    while True:
        f, where = dice.choice(FILTERS), dice.choice(("TRUE", *FILTERS))
        kind = dice.randrange(4)
        if kind == 0:
            number, rows = dice.choice(NUMBERS)
            names = dice.sample(GROUPS, dice.randrange(3))
            by = f" GROUP BY {', '.join(names)}" if names else ""
            listed = "".join(f"{name} AS k{i}, " for i, name in enumerate(names))
            having = " HAVING COUNT(*) > 30" if dice.random() < 0.2 else ""
            text = f"FROM {SALES} WHERE {where}{by}"
            plain = number in ("COUNT(*)", "SUM(amount)") and not having
            yield RuledStatement(
                f"SELECT {listed}{number.format(f=f)} AS x {text}{having}",
                f"SELECT {listed}{rows.format(f=f)} AS x {text}",
                plain,
            )
        elif kind == 1:
            total = f"(SELECT COUNT(*) FROM {SALES} WHERE {where})"
            part = f"(SELECT COUNT(*) FROM {SALES} WHERE ({where}) AND {f})"
            scale = dice.choice(("", "1000 * "))
            rest = f"SELECT COUNT(*) AS x FROM {SALES} WHERE ({where}) AND ({f}) IS NOT TRUE"
            yield RuledStatement(f"SELECT {scale}({total} - {part}) AS x", rest, False)
        else:
            keys, number, rows, tail = dice.choice(OUTER)
            key, n = dice.choice(GROUPS[1:]), dice.choice(("COUNT(*)", "SUM(amount)"))
            groups = f"SELECT {key} AS k, {n} AS n, COUNT(*) AS p FROM {SALES} WHERE {where} GROUP BY 1"
            union = f" UNION ALL {groups}" if number == "SUM(n)" and dice.random() < 0.3 else ""
            few = "MIN(p)" if union else rows  # two blocks may count the same people
            free = tail if tail.startswith("GROUP") or "IN" in tail else ""
            yield RuledStatement(
                f"SELECT {keys}{number} AS x FROM ({groups}{union}) AS q {tail}",
                f"SELECT {keys}{few} AS x FROM ({groups}) AS q {free}",
                False,
            )


Shown = list[tuple[tuple[str, ...], list[str]]]
"""Each row's keys as text, and what is shown of its last column: value and ends."""


def label(keys: Any) -> tuple[str, ...]:
    """Keys as every interface writes them."""
    return tuple("" if key is None else str(key).removesuffix(".0") for key in keys)


def _numbers(shown: Any) -> list[str]:
    return [
        str(value) for value in shown if value is not None and value != "" and not str(value).startswith("<")
    ]


class Asked:
    """The six interfaces over one ruled release, and the same release without the rule."""

    def __init__(self, releases: OpenReleases, wire: Wire | None, rows: float = ROWS) -> None:
        self.releases, self.wire, self.rows = releases, wire, rows
        ruleless = [replace(release, min_people=0) for release in releases.releases]
        self.free = ReleaseEngine(ruleless[0])
        if len(ruleless) > 1:
            self.free = OpenReleases(tuple(ruleless), tuple(map(ReleaseEngine, ruleless)))
        self.connection = Connection(releases)

    def python(self, sql: str) -> Shown:
        """`dpsql.connect`: values, standard errors, both ends."""
        result = self.connection.execute(sql).result
        assert result is not None
        low, high = result.interval_rows()
        rows = zip(result.rows, low, high, result.stderr_rows, strict=True)
        return [(label(r[:-1]), _numbers((r[-1], a[-1], b[-1], e[-1]))) for r, a, b, e in rows]

    def command(self, sql: str) -> Shown:
        """`dpsql query --format json`."""
        rows = json.loads(render(self.releases.query(sql), "json", 0.95))
        keys = [name for name in (rows[0] if rows else ()) if not name.startswith("x")]
        return [
            (label(row[k] for k in keys), _numbers(v for name, v in row.items() if name.startswith("x")))
            for row in rows
        ]

    def shell(self, sql: str) -> Shown:
        """`dpsql shell --format csv`."""
        state = ShellState(self.releases, "csv", output=(output := io.StringIO()))
        evaluate(InputPiece(sql, False), state)
        names, *rows = csv.reader(line for line in output.getvalue().splitlines() if line.strip())
        at = names.index("x")
        return [(label(row[:at]), _numbers(row[at : at + 5])) for row in rows if len(row) >= len(names)]

    def page(self, sql: str) -> Shown:
        """`dpsql explore`."""
        rows = answer_values(self.releases.query(sql), 0.95)["rows"]
        shown = []
        for row in rows:
            last = {k: v for k, v in row[-1].items() if k not in ("literal", "interval") and v != "NULL"}
            shown.append((label(_text(cell["text"]) for cell in row[:-1]), _numbers(last.values())))
        return shown

    def agents(self, sql: str) -> Shown:
        """`dpsql mcp`."""
        result = self.releases.query(sql)
        rows = claimed_answer(result, Statement("", sql, 0.95), "q")["rows"]
        shown = []
        for row in rows:
            *keys, last = row.values()
            numbers = [v for name, v in last.items() if name != "claim"] if isinstance(last, dict) else [last]
            shown.append((label(keys), _numbers(numbers)))
        return shown

    def served(self, sql: str) -> Shown:
        """`dpsql serve`."""
        assert self.wire is not None
        rows = [values(body) for kind, body in self.wire.ask(sql) if kind == "D"]
        texts = [[None if v is None else v.decode() for v in row] for row in rows]
        return [(label(row[:-1]), _numbers(row[-1:])) for row in texts]

    @property
    def interfaces(self) -> dict[str, Callable[[str], Shown]]:
        """All of them by name."""
        served = {} if self.wire is None else {"serve": self.served}
        return {
            "connect": self.python, "query": self.command, "shell": self.shell, "explore": self.page,
            "mcp": self.agents, **served,
        }  # fmt: skip

    def faults(self, statement: RuledStatement) -> dict[str, list[str]]:
        """By interface, rows that show a number of too few people, or hide a plain one of enough; none if refused."""
        try:
            rows = self.free.query(statement.rows).rows
            shown = {name: ask(statement.sql) for name, ask in self.interfaces.items()}
        except Error:
            return {}
        of = {label(row[:-1]): None if row[-1] is None else row[-1] / self.rows for row in rows}
        return {name: list(_faults(statement, answer, of)) for name, answer in shown.items()}


def _faults(
    statement: RuledStatement, shown: Shown, of: dict[tuple[str, ...], float | None]
) -> Iterator[str]:
    for keys, numbers in shown:
        people = of[keys]
        if people is None or abs(people - K) < NEAR:
            continue
        if (people < K) == bool(numbers) and (numbers or statement.plain):
            yield f"{statement.sql}: {keys}, of {people:.3f} people: {numbers or 'hidden'}"


def _text(text: str) -> str | None:
    return None if text == "NULL" else text
