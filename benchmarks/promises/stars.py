"""Random small stars with an aimed neighbour: one person more, whose rows are made to move as much as they can.

Sales lead to people over none, one or two tables; people share keys on that way; sales also name a public product
and a private campaign that nobody owns. The person who comes owns many rows, rows with everybody's keys, and several
rows in the people's own table. Sales lie in Parquet, in CSV, or are what a SELECT makes; their keys come as integers,
as floats beside NaN, or as text in several spellings; some stars count a second table of facts.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.privacy.loss import Bytes, RawRows, Tables

DAYS = tuple(f"2025-01-0{day}" for day in range(1, 5))
VICTIM, RIVAL = 900, 901
CATALOG = """
dpsql: 1
name: star
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {FILES}}
privacy: {lineage: star, cap: 99, unit: UNIT, epsilon: 1, delta: DELTA, neighbours: NEIGHBOURS}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 3}}}
  product: {role: dimension, key: product_id, private: false, columns: {category: {type: string}}}
  campaign: {role: dimension, key: campaign_id, private: true, columns: {medium: {type: int, lower: 0, upper: 1}}}
WAY  sales: {role: fact, foreign_keys: {link: NEXT, product_id: product, campaign_id: campaign},BOUNDS
    columns: {day: {type: date, lower: 2025-01-01, upper: 2025-01-04},
              amount: {type: int, lower: -3, upper: 9, measure: true}}}
STREAM
views:
  v: {of: sales, axes: [AXES], measures: [count, sales.amount]MECHANISM}
"""
RETURNS = """  returns: {role: fact, foreign_keys: {link: person}, max_ids: 2,
    columns: {size: {type: int, lower: 0, upper: 3}}}
"""
COUNTED = "  w: {of: returns, axes: [returns.size], measures: [count]}\n"
SELECT = (
    "SELECT s.link, s.day, s.product_id, s.campaign_id, try_cast(s.amount AS INT) AS amount FROM 'raw.parquet' AS s "
    "WHERE s.amount IS NOT NULL OR s.day IS NOT NULL"
)
HOP = """  TABLE: {role: dimension, key: key, private: true, foreign_keys: {link: NEXT},
    columns: {kind: {type: int, lower: 0, upper: 2}}}
"""


class Pair(NamedTuple):
    """Two neighbours under one catalog.

    Args:
        kind: what is special of the star, for messages.
        catalog: its text, for `measure`.
        left, right: raw tables.
        batches: labels, for a stream.
    """

    kind: str
    catalog: str
    left: Tables
    right: Tables
    batches: tuple[str, ...] = ()


def random_pair(seed: int) -> Pair:
    """One star and its neighbour as they may be stored; every tenth is a stream."""
    rng = random.Random(seed)
    pair = _star(rng, seed)
    spelt = rng.choice(["INT", "INT", "DOUBLE", "VARCHAR"])
    left, right = _with_keys(pair.left, spelt), _with_keys(pair.right, spelt)
    how = rng.choice([_in_parquet, _in_parquet, _in_csv, _by_select])
    text, left, right = how(pair.catalog, left, right)
    return pair._replace(catalog=text, left=left, right=right)


def random_star(seed: int) -> Pair:
    """The same before it is stored: tables of rows alone."""
    return _star(random.Random(seed), seed)


def _star(rng: random.Random, seed: int) -> Pair:
    way = ("orders", "account")[: rng.randrange(3)]
    stream, unit = seed % 10 == 9, rng.choice(["person.id"] * 7 + ["row"])
    bounds = rng.choice(["truncate", "truncate", "weight", "auto"]) if not stream else "truncate"
    neighbours = rng.choice(["add_remove", "add_remove", "replace_one"])
    base = _crowd(rng, way)
    right = _with_rows_of(rng, base, way, RIVAL) if neighbours == "replace_one" and unit != "row" else base
    left = _with_rows_of(rng, base, way, VICTIM)
    if unit == "row":
        left = base | {"sales": base["sales"].plus((0, DAYS[0], 1, 1, 9))}
    text = _catalog(rng, way, unit, bounds, neighbours, stream)
    if unit != "row" and not stream and rng.random() < 0.3:
        left, right = _with_returns(left), _with_returns(right)
        text = text.replace("views:\n", f"views:\n{COUNTED}").replace("\n\nviews:", f"\n{RETURNS}views:")
        text = text.replace("sales: sales.parquet", "sales: sales.parquet, returns: returns.parquet")
    kind = (
        f"{'-'.join(('sales', *way, 'person'))}, {unit}, {bounds}, {neighbours}{', stream' if stream else ''}"
    )
    return Pair(kind, text, left, right, DAYS[:2] if stream else ())


def _with_returns(tables: Tables) -> Tables:
    """A second table of facts, of which whoever comes owns many rows."""
    people = [row[0] for row in _rows(tables, "person").rows]
    odd = [(key, i) for key in (None, 77) for i in range(3)]
    mine = [(key, 3) for key in dict.fromkeys(people) for _ in range(9 if key in (VICTIM, RIVAL) else 2)]
    return {**tables, "returns": RawRows("link INT, size INT", [*odd, *mine])}


def _rows(tables: Tables, name: str) -> RawRows:
    table = tables[name]
    assert isinstance(table, RawRows)
    return table


def _with_keys(tables: Tables, kind: str) -> Tables:
    """The sales' foreign key in another type: floats beside NaN and halves, or text in several spellings."""
    sales = _rows(tables, "sales")
    if kind == "INT":
        return tables
    spellings = {"DOUBLE": ("{}.0", "{}"), "VARCHAR": ("{}", "00{}", "{}.0", "+{}")}[kind]
    nobodys = {"DOUBLE": ("nan", "inf", "7.5"), "VARCHAR": ("nan", "7,0", "")}[kind]
    rows = [
        (None if row[0] is None else spellings[i % len(spellings)].format(row[0]), *row[1:])
        for i, row in enumerate(sales.rows)
    ]
    odd = [(key, DAYS[0], 1, 1, 9) for key in nobodys for _ in range(4)]
    return {**tables, "sales": RawRows(sales.columns.replace("link INT", f"link {kind}"), [*odd, *rows])}


_Written = tuple[str, Tables, Tables]
"""A catalog's text and both sides, as their tables are stored."""


def _in_parquet(text: str, left: Tables, right: Tables) -> _Written:
    return text, left, right


def _in_csv(text: str, left: Tables, right: Tables) -> _Written:
    """Every table as a file of text; what is NULL is an empty field."""

    def files(tables: Tables) -> Tables:
        found = {}
        for name in tables:
            table = _rows(tables, name)
            lines = [",".join(part.split()[0] for part in table.columns.split(", "))]
            lines += [",".join("" if value is None else str(value) for value in row) for row in table.rows]
            found[name] = Bytes(f"{name}.csv", "\n".join(lines).encode())
        return found

    typed = text.replace("columns: {age:", "columns: {id: {type: int}, age:")
    return typed.replace("kind: parquet", "kind: csv").replace(".parquet", ".csv"), files(left), files(right)


def _by_select(text: str, left: Tables, right: Tables) -> _Written:
    """Sales as a SELECT makes them of another file, where amounts are text."""

    def raw(tables: Tables) -> Tables:
        sales = _rows(tables, "sales")
        kept = {name: table for name, table in tables.items() if name != "sales"}
        return kept | {"raw": RawRows(sales.columns.replace("amount INT", "amount VARCHAR"), sales.rows)}

    return text.replace("sales: sales.parquet", f'sales: "{SELECT}"'), raw(left), raw(right)


def _crowd(rng: random.Random, way: tuple[str, ...]) -> dict[str, RawRows]:
    people = range(rng.randrange(6, 25))
    keys = range(len(people))
    sales = [
        (
            rng.choice([*keys, None, 77]),
            rng.choice(DAYS),
            rng.randrange(4),
            rng.randrange(4),
            rng.randrange(-9, 19),
        )
        for _ in range(rng.randrange(20, 120))
    ]
    tables = {
        "person": RawRows("id INT, age INT", [(i, rng.choice([0, 1, 2, 3, 9, None])) for i in people]),
        "product": RawRows("product_id INT, category VARCHAR", [(i, "ab"[i % 2]) for i in range(3)]),
        "campaign": RawRows("campaign_id INT, medium INT", [(i % 3, i % 2) for i in range(5)]),
        "sales": RawRows("link INT, day DATE, product_id INT, campaign_id INT, amount INT", sales),
    }
    for table in way:
        own = [(key, key, rng.randrange(3)) for key in keys]
        shared = [(rng.choice(keys), rng.choice(keys), rng.randrange(3)) for _ in range(rng.randrange(6))]
        tables[table] = RawRows("key INT, link INT, kind INT", own + shared)
    return tables


def _with_rows_of(rng: random.Random, base: dict[str, RawRows], way: tuple[str, ...], person: int) -> Tables:
    """The star with one more person: her own sales, claims on everybody's keys, and several rows of herself."""
    tables, cell = dict(base), (rng.choice(DAYS), 1, 1, rng.choice([-3, 9, 10**6]))
    tables["sales"] = base["sales"].plus(*([(person, *cell)] * rng.choice([0, 1, 3, 40])))
    tables["person"] = base["person"].plus(
        *((person, age) for age in rng.sample([0, 1, 2, 3, None], rng.randrange(4)))
    )
    for table in way:
        own = [(person, person, k) for k in range(rng.randrange(1, 4))]
        keys = range(len(base["person"].rows)) if rng.random() < 0.8 else ()
        tables[table] = base[table].plus(*own, *((key, person, rng.randrange(3)) for key in keys))
    return tables


def _catalog(
    rng: random.Random, way: tuple[str, ...], unit: str, bounds: str, neighbours: str, stream: bool
) -> str:
    names = [*way, "person"]
    hops = "".join(HOP.replace("TABLE", t).replace("NEXT", n) for t, n in zip(way, names[1:], strict=True))
    files = ", ".join(f"{name}: {name}.parquet" for name in ("person", "product", "campaign", "sales", *way))
    axes = rng.choice(
        ["sales.day", "person.age", "campaign.medium", "product.category", *(f"{t}.kind" for t in way)]
    )
    pure = rng.random() < 0.6
    declared = f" max_ids: {rng.randrange(1, 5)}, bounding: {bounds},"
    bounding = "" if unit == "row" else " max_ids: auto," if bounds == "auto" else declared
    filled = {
        "FILES": files, "UNIT": unit, "DELTA": "0" if pure else "1e-6", "NEIGHBOURS": neighbours, "WAY": hops,
        "NEXT": names[0], "BOUNDS": bounding,
        "STREAM": "stream: {column: sales.day, grain: day, horizon: 4, max_batches: 2}" if stream else "",
        "AXES": f"sales.day, {axes}" if stream and axes != "sales.day" else axes,
        "MECHANISM": ", mechanism: identity" if pure and bounds != "auto" and not stream else "",
    }  # fmt: skip
    text = CATALOG
    for word, value in filled.items():
        text = text.replace(word, value)
    return text
