"""399 statements that Tableau sent: each parses, and is answerable or refused for a named reason.

There is no data behind them, so each is given a star of its own: every column is an axis column, every column
or expression that it sums is a declared measure.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from sqlglot import exp

from dpsql.errors import NotSupportedError, RawRowsError
from dpsql.planner.block import CatalogValue
from dpsql.planner.schema import Schema, SchemaTable
from dpsql.release import AxisMeta, ColumnMeta
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement

pytestmark = pytest.mark.long


def star_of(tree: exp.Expression) -> Schema:
    """A star in which everything the statement names is declared."""
    tables = list(dict.fromkeys(table.name for table in tree.find_all(exp.Table))) or ["t"]
    aliases = {item.alias for item in tree.find_all(exp.Alias)}
    names = list(dict.fromkeys(c.name for c in tree.find_all(exp.Column) if c.table or c.name not in aliases))
    summed = [call.this for call in tree.find_all(exp.Sum, exp.Avg)]
    plain = {column.name for item in summed for column in item.find_all(exp.Column)}
    odd = {f"m{i}": bare(item) for i, item in enumerate(summed)}
    found = {
        name.lower(): SchemaTable(
            name, None, {low.lower(): low for low in names}, {}, odd, {}, frozenset(), {}, frozenset(), True
        )
        for name in tables
    }
    columns = tuple(
        ColumnMeta((), table, name, f"c{i}", "VARCHAR") for table in tables for i, name in enumerate(names)
    )
    axis = AxisMeta("all", tables[0], (), tables[0], 10, columns, True, 0, "")
    measures = frozenset({"count"} | {f"{table}.{name}" for table in tables for name in plain | set(odd)})
    return Schema("w", found, (axis,), measures)


def bare(node: exp.Expression) -> str:
    """An expression as a catalog would declare it: without tables, casts and brackets outside."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
    while isinstance(copy, (exp.Paren, exp.Cast)):
        copy = copy.this
    return copy.sql(dialect="duckdb")


def classify(text: str) -> str:
    """`plain`, `axis bounds`, `distinct`, or the reason of the refusal."""
    tree = parse(text)
    try:
        statement = split_statement(tree, star_of(tree), text)
    except (NotSupportedError, RawRowsError) as error:
        return error.reason
    functions = {
        value.function
        for block in statement.blocks
        for value in block.values
        if isinstance(value, CatalogValue)
    }
    return "distinct" if "count" in functions else "axis bounds" if functions else "plain"


def test_tableau(shared_data: Path) -> None:
    """An error of any other class than the two that `classify` takes fails it."""
    lines = (shared_data / "sql" / "tableau_public_bi.jsonl").read_text(encoding="utf-8").splitlines()
    found = Counter(classify(json.loads(line)["sql"]) for line in lines)
    assert sum(found.values()) == 399
    catalog = found["plain"] + found["distinct"]  # domain lists and sizes, COUNT, SUM, AVG; the clock once
    assert catalog == 325
    assert catalog + found["axis bounds"] == 392
    assert all(reason for reason in found), found
