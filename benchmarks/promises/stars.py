"""Random small stars with an aimed neighbour: one person more, whose rows are made to move as much as they can.

Sales lead to people over none, one or two tables; people share keys on that way; sales also name a public product
and a private campaign that nobody owns. The person who comes owns many rows, rows with everybody's keys, and several
rows in the people's own table.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from tests.privacy.loss import Rows, Tables

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
    """One star and its neighbour; every tenth is a stream."""
    rng = random.Random(seed)
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
    kind = (
        f"{'-'.join(('sales', *way, 'person'))}, {unit}, {bounds}, {neighbours}{', stream' if stream else ''}"
    )
    return Pair(kind, text, left, right, DAYS[:2] if stream else ())


def _crowd(rng: random.Random, way: tuple[str, ...]) -> dict[str, Rows]:
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
        "person": Rows("id INT, age INT", [(i, rng.choice([0, 1, 2, 3, 9, None])) for i in people]),
        "product": Rows("product_id INT, category VARCHAR", [(i, "ab"[i % 2]) for i in range(3)]),
        "campaign": Rows("campaign_id INT, medium INT", [(i % 3, i % 2) for i in range(5)]),
        "sales": Rows("link INT, day DATE, product_id INT, campaign_id INT, amount INT", sales),
    }
    for table in way:
        own = [(key, key, rng.randrange(3)) for key in keys]
        shared = [(rng.choice(keys), rng.choice(keys), rng.randrange(3)) for _ in range(rng.randrange(6))]
        tables[table] = Rows("key INT, link INT, kind INT", own + shared)
    return tables


def _with_rows_of(rng: random.Random, base: dict[str, Rows], way: tuple[str, ...], person: int) -> Tables:
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
