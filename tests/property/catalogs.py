"""Random catalogs with random rows, and what comes of asking a release of each everything that it offers.

    faults(publish_random(folder, seed), seed) -> texts of statements that ended in a fault, each with its fault

A fault is an exception that is none of dpsql's own, an internal error, a release that is said to be damaged, or an
interval that is missing without a reason.
"""

from __future__ import annotations

import datetime
import random
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.prove.layouts import RawRows
from dpsql.errors import Error, InternalError, QueryTimeout, ReleaseError
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.python.describe import (
    ExampleQuestion,
    Words,
    asked_name,
    complete,
    describe,
    groupings,
    headlines,
    widest,
)
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release.request import LIMIT, Request
from dpsql.results.render import STYLES, html_table, render, text_table
from dpsql.results.result import OPEN, PAST, Result
from dpsql.row_expressions import identifier
from tests.releases import write_tables

PERSONS, ROWS = 120, 900
BUSY = 900.0
"""Seconds on a machine that others use too; of its CPU a statement may take a request's limit."""
KINDS = ("walk in", "by mail", "Ärzte's")
START = datetime.date(2024, 1, 1)
FOUND_BOUNDS = ("1", "3", "12", "auto")


@dataclass(frozen=True)
class Published:
    """A release of a random catalog."""

    release: Path
    catalog: str


def random_catalog(draw: random.Random) -> dict[str, Any]:
    """A catalog about the tables of `write_rows`."""
    null = lambda: draw.random() < 0.4  # noqa: E731 - a coin
    by_row = draw.random() < 0.15
    person = {
        "age": {"type": "int", "lower": 18, "upper": 57, "nullable": null()},
        "region": {"type": "string", "categories": ["n", "s", "w"], "nullable": null()},
        "member": {"type": "bool", "nullable": null()},
    }
    visit = {
        "amount": {"type": "decimal", "scale": 2, "lower": draw.choice((-20, 0)), "upper": 100, "measure": True,
                   "nullable": null()},
        "units": {"type": "int", "lower": 0, "upper": 9, "measure": True, "nullable": null()},
        "on_day": {"type": "date", "lower": "2024-01-01", "upper": "2024-03-31", "nullable": null(),
                   "out_of_domain": draw.choice(("other", "drop"))},
        "moment": {"type": "timestamp", "grain": "hour", "lower": "2024-01-01 00:00:00", "upper": "2024-01-02 23:00:00",
               "nullable": null()},
        "kind": {"type": "string", "categories": list(KINDS), "nullable": null()},
        "paid": {"type": "bool", "nullable": null()},
        "price": {"type": "decimal", "scale": 1, "lower": 0, "upper": 5, "nullable": null()},
    }  # fmt: skip
    bound: dict[str, Any] = {} if by_row else {"max_ids": draw.choice(FOUND_BOUNDS)}
    if bound.get("max_ids") not in (None, "auto") and draw.random() < 0.4:
        bound["bounding"] = "weight"
    delta = draw.choice(("0", "1e-6"))
    views = {f"v{i}": _view(draw, delta, by_row) for i in range(draw.randint(1, 3))}
    tables: dict[str, Any] = {
        "person": {"role": "dimension", "key": "id", "private": True, "columns": person},
        "product": {"role": "dimension", "key": "pid", "private": False, "columns": {
            "category": {"type": "string"}, "size": {"type": "int"}}},
        "visit": {"role": "fact", "columns": visit, **bound,
                  "foreign_keys": {"id": "person", "pid": {"references": "product", "on_missing": draw.choice(
                      ("keep", "drop"))}}},
    }  # fmt: skip
    privacy = {
        "lineage": "random", "cap": 100, "unit": "row" if by_row else "person.id", "delta": delta,
        "epsilon": draw.choice((1, 4, 20)), "neighbours": draw.choice(("add_remove", "add_remove", "replace_one")),
    }  # fmt: skip
    if draw.random() < 0.2:
        privacy["rows"] = "public"
    sources = {"person": "person.parquet", "product": "product.parquet", "visit": "visit.parquet"}
    return {
        "dpsql": 1, "name": "random_star", "source": {"kind": "parquet", "root": ".", "tables": sources},
        "privacy": privacy, "tables": tables, "views": views,
    }  # fmt: skip


AXES: tuple[Any, ...] = (
    "person.age", {"axis": "person.age", "cuts": [30, 45]}, {"axis": "person.age", "cuts": {"width": 7}},
    "person.region", "person.member", "visit.on_day", {"axis": "visit.on_day", "cuts": {"width": "month"}},
    {"axis": "visit.on_day", "cuts": {"width": "week"}}, "visit.moment",
    {"axis": "visit.moment", "cuts": {"width": "day"}},
    "visit.kind", "visit.paid", "visit.price", {"axis": "visit.price", "cuts": {"width": 1}}, "visit.units",
    {"axis": "product", "by": ["category"]}, {"axis": "product", "by": ["category", "size"]},
)  # fmt: skip


def _view(draw: random.Random, delta: str, by_row: bool) -> dict[str, Any]:
    """A view of up to three axes and up to 20,000 cells; a cube where the catalog has a delta."""
    of = "person" if not by_row and draw.random() < 0.2 else "visit"
    usable = [axis for axis in AXES if of == "visit" or str(axis).count("person.")]
    chosen: dict[str, Any] = {}
    for axis in draw.sample(usable, draw.randint(1, 3)):
        name = axis if isinstance(axis, str) else axis["axis"]
        chosen.setdefault(name, axis)
    measures = ["count"]
    if of == "visit":
        measures = draw.choice((["count"], ["count", "visit.amount"], ["count", "visit.units"],
                                ["count", "visit.amount", "visit.units"]))  # fmt: skip
        if not by_row and draw.random() < 0.3:
            measures = [*measures, "people"]
    view: dict[str, Any] = {"of": of, "axes": list(chosen.values()), "measures": measures}
    if len(chosen) == 3 and delta != "0" and draw.random() < 0.5:
        view["ways"] = 2
    if draw.random() < 0.2:
        view["nonnegative"] = draw.random() < 0.5
    return view


def write_rows(folder: Path, draw: random.Random) -> None:
    """Tables with NULLs, keys without a partner and values outside of their domains."""

    def perhaps(value: Any, share: float = 0.08) -> Any:
        return None if draw.random() < share else value

    persons = [
        (i, perhaps(draw.randint(15, 60)), perhaps(draw.choice("nswx")), perhaps(draw.random() < 0.4))
        for i in range(PERSONS)
    ]
    products = [(i, draw.choice(("tea", "cake", "bread")), i % 2) for i in range(6)]
    visits = [
        (
            int(PERSONS * draw.random() ** 3), perhaps(draw.randrange(7)), perhaps(round(draw.uniform(-30, 120), 2)),
            perhaps(draw.randint(0, 11)), perhaps(START + datetime.timedelta(days=draw.randint(-2, 95))),
            perhaps(datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=draw.randint(-2, 50))),
            perhaps(draw.choice((*KINDS, "lost"))), perhaps(draw.random() < 0.5), perhaps(round(draw.random() * 6, 1)),
        )
        for _ in range(ROWS)
    ]  # fmt: skip
    visit = "id INT, pid INT, amount DECIMAL(9, 2), units INT, on_day DATE, moment TIMESTAMP, kind VARCHAR"
    tables = {
        "person": RawRows("id INT, age INT, region VARCHAR, member BOOLEAN", persons),
        "product": RawRows("pid INT, category VARCHAR, size INT", products),
        "visit": RawRows(f"{visit}, paid BOOLEAN, price DECIMAL(9, 1)", visits),
    }
    write_tables(folder, tables)


def publish_random(folder: Path, seed: int) -> Published | str:
    """Publish a random catalog; the refusal where the catalog asks for what there is not.

    Args:
        folder: made if it is absent.
        seed: of the catalog, the rows and the draws.
    """
    import yaml

    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    write_rows(folder, draw)
    text = yaml.safe_dump(random_catalog(draw), sort_keys=False, allow_unicode=True)
    catalog, release = folder / "random.yaml", folder / "random.dpsql"
    catalog.write_text(text, encoding="utf-8")
    try:
        noise = ExactNoise(insecure_test_entropy(seed))
        publish_release(load_catalog(catalog), release, noise=noise, key=bytes(32))
    except InternalError:
        raise
    except Error as error:
        return str(error)
    return Published(release, text)


def faults(published: Published, seed: int, most: int | None = None) -> list[str]:
    """Ask a release everything that it offers, and report what went wrong.

    Args:
        published: the release.
        seed: of the choice among statements.
        most: how many statements; None for all.
    """
    opened = open_session([published.release], insecure=True)
    try:
        statements = list(dict.fromkeys([q.sql for q in examples(opened)] + list(aggregates(opened))))
        if most is not None and len(statements) > most:
            statements = random.Random(seed).sample(statements, most)
        words = Words(table for release in opened.releases for table in describe(release))
        for begun in ("", "SELECT ", "SELECT COUNT(*) FROM ", "SELECT COUNT(*) FROM visit WHERE kind = '"):
            list(complete(words, begun))
        return [f"{fault}\n  {sql}" for sql in statements if (fault := fault_of(opened, sql))]
    finally:
        opened.close()


def examples(opened: OpenReleases) -> list[ExampleQuestion]:
    """What `explore` and `report` would show."""
    return [*headlines(opened), *groupings(opened)]


def aggregates(opened: OpenReleases) -> Iterator[str]:
    """Every aggregate over every axis of every view, whole and cut, and what is made of several."""
    (release,) = opened.releases
    tables = describe(release)
    for statistic in release.statistics:
        source = identifier(widest(tables, statistic.of).name)
        values = ["COUNT(*)", "COUNT(DISTINCT id)", "AVG(id)"]
        if statistic.measure.column:
            measure = identifier(statistic.measure.column)
            values += [
                f"SUM({measure})",
                f"AVG({measure})",
                f"COUNT({measure})",
                f"SUM({measure}) / COUNT(*)",
            ]
        columns = [
            (identifier(asked_name(axis, column, tables)), column.type)
            for axis in (release.axes[number] for number in statistic.axes)
            for column in axis.columns
        ]
        keys = ["", *(name for name, _ in columns)]
        for name, kind in columns:
            values += [f"MIN({name})", f"MAX({name})"]
            if kind not in ("VARCHAR", "BOOLEAN"):
                values += [f"MEDIAN({name})", f"QUANTILE_CONT({name}, 0.9)"]
            values += [f"COUNT(*) FILTER (WHERE {name} IS NULL)", f"COUNT({name})"]
        for value in dict.fromkeys(values):
            for key in keys:
                yield (
                    f"SELECT {value} AS v FROM {source}"
                    if not key
                    else (f"SELECT {key} AS k, {value} AS v FROM {source} GROUP BY {key}")
                )
        for value in dict.fromkeys(values[:7]):
            for key, kind in columns:
                if middle := MIDDLES.get(kind.partition("(")[0]):
                    yield f"SELECT {value} AS v FROM {source} WHERE {key} <= {middle}"
                yield f"SELECT {key} AS k, {value} AS v FROM {source} GROUP BY ROLLUP ({key})"
                inner = f"SELECT {key} AS k, {value} AS n FROM {source} GROUP BY {key}"
                yield f"SELECT k, n / SUM(n) OVER () AS v, DP_STDERR(n) AS e FROM ({inner}) AS t"
                yield f"SELECT SUM(n) AS v FROM ({inner}) AS t"


MIDDLES = {
    "BIGINT": "33", "INTEGER": "33", "DECIMAL": "2.5", "DATE": "DATE '2024-02-10'",
    "TIMESTAMP": "TIMESTAMP '2024-01-01 13:30:00'",
}  # fmt: skip


def fault_of(opened: OpenReleases, sql: str) -> str:
    """What went wrong with a statement; empty if nothing did."""
    start = time.process_time()
    try:
        with Request(BUSY).working():
            result = opened.query(sql)
            shown = missing(result, "AVG(" in sql or " / " in sql)
            for style in STYLES:
                render(result, style, 0.9)
            text_table(result), html_table(result), result.components, result.plan
    except (InternalError, QueryTimeout, ReleaseError) as error:
        return f"{type(error).__name__}: {error}"
    except Error:
        return ""
    except Exception:  # noqa: BLE001 - a traceback is what is looked for
        return traceback.format_exc(limit=-3)
    took = time.process_time() - start
    return shown or (f"took {took:.0f} s of CPU" if took > LIMIT else "")


def missing(result: Result, quotient: bool) -> str:
    """The first value without an interval, and without a reason; only a quotient's may be unbounded on both sides.

    Totals of a table with too few people for the noise have an open end; the reason of the column says so.
    """
    gaps = {name: why for name, why in result.gaps(0.9).items() if quotient or why in (OPEN, PAST)}
    low, high = result.interval_rows(0.9)
    for column, name in enumerate(result.columns):
        if (
            name != "v"
            or name in result.undefined
            or name in gaps
            or any("no noise" in note for note in result.notes)
        ):
            continue
        for row, a, b in zip(result.rows, low, high, strict=True):
            if row[column] is not None and (a[column] is None or b[column] is None):
                return f"no interval of {row[column]} ({a[column]}, {b[column]}); notes: {result.notes}"
    return ""
