"""Aimed neighbours at every joint: one catalog of each kind, each measured by another mechanism.

A person comes, or takes another one's place, whose rows are made to move as much as they can. `proved` is how near
to its claim docs/audit.md says that the pair comes; nothing may pass 1. Pairs are `slow` whose kind another
default pair or test measures too (`test_stream_types`, `test_people`, `test_blocks_exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from dpsql.central.bounding import reach
from tests.privacy.csv_case import HOSTILE
from tests.privacy.loss import Bytes, Loss, RawRows, Tables, measure
from tests.privacy.test_hybrid_release import CASES, PROMISES, one_person_more

DAYS = tuple(f"2025-01-0{day}" for day in range(1, 9))
VICTIM, RIVAL, CROWD = 900, 901, 30
TIGHT, HALF, ANY = 1.0, 0.5, 0.001
WITHIN = 0.98
"""What a pair must lose of the share that is proved."""
TEXT = """
dpsql: 1
name: star
ledger: LEDGER
source: {kind: KIND, root: ROOT, tables: {FILES}}
privacy: {lineage: star, cap: 99, unit: UNIT, epsilon: 1, PROMISE}
tables:
  person: {role: dimension, key: id, private: true, columns: {id: {type: int}, age: {type: int, lower: 0, upper: 7}}}
  campaign: {role: dimension, key: code, private: true, columns: {medium: {type: int, lower: 0, upper: 1}}}
WAY  sales: {role: fact, foreign_keys: {link: NEXT, code: campaign}, BOUNDS
    columns: {day: {type: date, lower: 2025-01-01, upper: 2025-01-08}, size: {type: int, lower: 0, upper: 7},
              amount: {type: int, lower: -3, upper: 9, measure: true}}}
RETURNSSTREAM
views:
  v: {of: sales, axes: [AXES], measures: MEASURESMECHANISM}
MORE
"""
HOP = """  TABLE: {role: dimension, key: key, private: true, foreign_keys: {link: NEXT},
    columns: {kind: {type: int, lower: 0, upper: 2}}}
"""
RETURNS = """  returns: {role: fact, foreign_keys: {link: person}, max_ids: 2, clipped_share: 0.01,
    columns: {size: {type: int, lower: 0, upper: 7}}}
"""
WEIGHTS = "max_ids: 4, bounding: weight, clipped_share: 0.01,"
SALES = "link INT, code INT, day DATE, size INT, amount INT"


class Joint(NamedTuple):
    """Two neighbours under one catalog.

    Args:
        name: what is special.
        measured: folder -> loss.
        proved: the share of the claim that a pair can lose, by docs/audit.md; 0 where nothing is said.
        slow: whether the pair is left to `make slow`.
    """

    name: str
    measured: Callable[[Path], Loss]
    proved: float
    slow: bool = False


def catalog(
    *,
    way: Sequence[str] = (),
    unit: str = "person.id",
    promise: str = "delta: 0",
    bounds: str = "max_ids: 4, clipped_share: 0.01,",
    axes: str = "sales.size",
    measures: str = "[count, sales.amount]",
    mechanism: str = ", mechanism: identity",
    files: Mapping[str, str] | None = None,
    kind: str = "parquet",
    returns: str = "",
    stream: str = "",
    more: str = "",
) -> str:
    """The star with some of its parts exchanged."""
    names = [*way, "person"]
    hops = "".join(HOP.replace("TABLE", t).replace("NEXT", n) for t, n in zip(way, names[1:], strict=True))
    places = {name: f"{name}.{kind}" for name in ("person", "campaign", "sales", *way)}
    places |= {"returns": f"returns.{kind}"} if returns else {}
    told = ", ".join(f'{name}: "{place}"' for name, place in (places | dict(files or {})).items())
    filled = {
        "KIND": kind, "FILES": told, "UNIT": unit, "PROMISE": promise, "WAY": hops, "NEXT": names[0],
        "BOUNDS": bounds if unit != "row" else "", "RETURNS": returns, "STREAM": stream, "AXES": axes,
        "MEASURES": measures, "MECHANISM": mechanism, "MORE": more,
    }  # fmt: skip
    text = TEXT
    for word, value in filled.items():
        text = text.replace(word, value)
    return text


def crowd(way: Sequence[str] = ()) -> dict[str, RawRows]:
    """Thirty people with four sales each; every campaign stands twice."""
    sales = [
        (i, i % 3, DAYS[(i + j) % 8], (i * j) % 8, (i + j) % 14 - 3) for i in range(CROWD) for j in range(4)
    ]
    tables = {
        "person": RawRows("id INT, age INT", [(i, i % 8) for i in range(CROWD)]),
        "campaign": RawRows("code INT, medium INT", [(i % 3, i % 2) for i in range(6)]),
        "sales": RawRows(SALES, sales),
    }
    return tables | {
        name: RawRows("key INT, link INT, kind INT", [(i, i, i % 3) for i in range(CROWD)]) for name in way
    }


def owned(
    unit: int, rows: int, way: Sequence[str] = (), *, last: bool = True
) -> dict[str, list[tuple[object, ...]]]:
    """One unit's rows: all in the last cell, or all in the first; on the way also everybody's keys, and a second row
    of the person."""
    cell = (DAYS[-1], 7, 9) if last else (DAYS[0], 0, -3)
    claims = [(key, unit, 2) for key in range(CROWD)]
    persons = [(unit, 7 * last), (unit, None)] if way else [(unit, 7 * last)]
    found = {"person": persons, "sales": [(unit, 1, *cell)] * rows}
    return found | {name: [(unit, unit, 2 * last), *claims] for name in way}  # type: ignore[return-value]


def joined(
    tables: Mapping[str, RawRows], *more: Mapping[str, Sequence[tuple[object, ...]]]
) -> dict[str, RawRows]:
    """Tables with the rows of some units."""
    found = dict(tables)
    for rows in more:
        found |= {name: found[name].plus(*own) for name, own in rows.items()}
    return found


def one_more(
    text: str,
    rows: int = 500,
    way: Sequence[str] = (),
    *,
    replaced: bool = False,
    rival: int = 0,
    others: Mapping[str, RawRows] | None = None,
    batches: Sequence[str] = (),
    seed: int = 0,
    unit: int = VICTIM,
) -> Callable[[Path], Loss]:
    """One person more, or in the place of another one, who has as many rows or those given."""
    base = crowd(way) | dict(others or {})
    left = joined(base, owned(unit, rows, way))
    right = joined(base, owned(RIVAL, rival or rows, way, last=False)) if replaced else base
    return lambda folder: measure(text, left, right, folder, batches=batches, seed=seed)


def person(
    text: str, *sales: tuple[object, ...], batches: Sequence[str] = (), seed: int = 0
) -> Callable[[Path], Loss]:
    """One person more with these sales."""
    left = joined(crowd(), {"person": [(VICTIM, 7)], "sales": sales})
    return lambda folder: measure(text, left, crowd(), folder, batches=batches, seed=seed)


LOW, MIDDLE, HIGH, NULL = ((VICTIM, 1, DAYS[-1], 7, amount) for amount in (-3, 3, 9, None))
SPREAD = [(VICTIM, 1, DAYS[k], k, 9 if k % 2 else -3) for k in range(4)]


def nullable(text: str) -> str:
    """A catalog in which amounts may be NULL."""
    return text.replace("measure: true}", "measure: true, nullable: true}")


def row_more(
    text: str, rows: Sequence[tuple[object, ...]], *, replaced: bool = False
) -> Callable[[Path], Loss]:
    """One row more, or another one in its place."""
    base = crowd()
    right = joined(base, {"sales": [(3, 1, DAYS[0], 0, -3)]}) if replaced else base
    return lambda folder: measure(text, joined(base, {"sales": rows}), right, folder)


EXCESS = "excess_share: 0.05,"
"""Bounds are -3 to 9, so 20 is near and 400 far."""


def values_beyond(
    text: str, *amounts: int, unit: int = VICTIM, replaced: bool = False
) -> Callable[[Path], Loss]:
    """One person more, or in another one's place, with nine rows of each of some amounts; or one row of nobody's."""

    def of(unit: int, cell: tuple[str, int], *amounts: int) -> dict[str, list[tuple[object, ...]]]:
        sales = [(unit, 1, *cell, amount) for amount in amounts for _ in range(9 if unit >= VICTIM else 1)]
        return {"person": [(unit, 7)] if unit >= VICTIM else [], "sales": sales}  # type: ignore[dict-item]

    base = joined(crowd(), of(3, (DAYS[2], 1), 20, 400, -20))
    left = joined(base, of(unit, (DAYS[-1], 7), *amounts))
    right = joined(base, of(RIVAL, (DAYS[0], 0), -400)) if replaced else base
    return lambda folder: measure(text, left, right, folder)


def nan_keys(folder: Path) -> Loss:
    """Keys that are floats: NULL, NaN, infinity and 7.5 are nobody's, 900.0 is person 900."""
    base = crowd()
    odd = [(key, 1, DAYS[0], 1, 9) for key in (None, "nan", "inf", "7.5", "-0.0", "1e300") for _ in range(9)]
    sales = RawRows(SALES.replace("link INT", "link DOUBLE"), [*base["sales"].rows, *odd])
    left = joined(base | {"sales": sales}, owned(VICTIM, 9))
    return measure(catalog(mechanism=", mechanism: tents"), left, base | {"sales": sales}, folder)


NOTES = ('"said ""hi"", left"', "it's", "it's")
"""What others write in a column of free text that the catalog does not name."""


def csv_files(tables: Mapping[str, RawRows]) -> dict[str, list[bytes]]:
    """Lines of each table's CSV file, header first; each row ends with a note."""
    return {
        name: [b",".join([*(part.split()[0].encode() for part in table.columns.split(", ")), b"note"])]
        + [",".join([*map(str, row), NOTES[i % 3]]).encode() for i, row in enumerate(table.rows)]
        for name, table in tables.items()
    }


def csv_line(line: bytes) -> Callable[[Path], Loss]:
    """One line more among the sales."""

    def side(*more: bytes) -> Tables:
        lines = csv_files(crowd())
        lines["sales"][60:60] = more
        return {name: Bytes(f"{name}.csv", b"\n".join(own)) for name, own in lines.items()}

    text = catalog(kind="csv", unit="row", axes="sales.day")
    return lambda folder: measure(text, side(line), side(), folder)


def _as_sale(line: bytes) -> bytes:
    """A hostile line whose first fields are a sale's, if they were fields at all."""
    return line.replace(b"7,7,", b"3,1,2025-01-08,7,9,", 1)


SQL = (
    "SELECT s.link, s.code, s.day, least(s.size, 7) AS size, try_cast(s.amount AS INT) AS amount "
    "FROM 'raw.parquet' AS s WHERE s.size >= 0 OR s.amount IS NOT NULL"
)


def sql_source(folder: Path) -> Loss:
    """Sales that a SELECT makes of text and numbers beyond the domain."""

    def raw(tables: Tables) -> Tables:
        rows = [
            (*row[:3], row[3] + 5 if row[3] == 7 else row[3], str(row[4])) for row in tables["sales"].rows
        ]  # type: ignore[union-attr]
        kinds = SALES.replace("amount INT", "amount VARCHAR")
        return {name: table for name, table in tables.items() if name != "sales"} | {
            "raw": RawRows(kinds, rows)
        }

    text = catalog(files={"sales": SQL}, mechanism=", mechanism: {tree: kary, arity: 2}")
    return measure(text, raw(joined(crowd(), owned(VICTIM, 9))), raw(crowd()), folder)


LATE = "CASE WHEN max(link) OVER () >= 900 THEN DATE '2025-01-01' ELSE day END"


def windowed_source(folder: Path) -> Loss:
    """A source whose rows follow from everybody's."""
    select = f"SELECT link, code, {LATE} AS day, size, amount FROM 'sales.parquet'"
    text = catalog(files={"sales": select}, axes="sales.day", measures="[count]")
    return measure(text, joined(crowd(), owned(VICTIM, 1)), crowd(), folder)


def two_facts(folder: Path) -> Loss:
    """Sales and returns of one person."""
    text = catalog(
        returns=RETURNS, axes="sales.day, sales.size", promise="delta: 1e-6", mechanism=", mechanism: residual",
        more="  w: {of: returns, axes: [returns.size], measures: [count]}\n",
    )  # fmt: skip
    base = crowd() | {"returns": RawRows("link INT, size INT", [(i, i % 8) for i in range(CROWD)])}
    left = joined(base, owned(VICTIM, 9), {"returns": [(VICTIM, 7)] * 9})
    return measure(text, left, base, folder)


BATCHES = DAYS[:4]
STREAM = "stream: {column: sales.day, grain: day, horizon: 4, max_batches: LIFE, strategy: STRATEGY}"


def stream(life: int, promise: str, strategy: str = "auto", way: Sequence[str] = ()) -> str:
    return catalog(
        way=way, axes="sales.day, sales.size", promise=promise, mechanism="", bounds="max_ids: 2,",
        stream=STREAM.replace("LIFE", str(life)).replace("STRATEGY", strategy),
    )  # fmt: skip


def in_each_batch(text: str) -> Callable[[Path], Loss]:
    """A person with rows in every batch."""
    return person(text, *((VICTIM, 1, day, 7, 9) for day in BATCHES for _ in range(5)), batches=BATCHES)


def changing_types(folder: Path) -> Loss:
    """Numbers of people that come as integers, as floats, as decimals and as text, in files of each batch."""
    kinds = ("BIGINT", "DOUBLE", "DECIMAL(9,2)", "VARCHAR")
    spelt = (str, lambda key: f"{key}.0", lambda key: f"{key}.00", lambda key: f"00{key}")
    base = crowd()

    def side(*units: int) -> Tables:
        tables: dict[str, RawRows] = joined(base, *({"person": [(unit, 7)]} for unit in units))
        for day, kind, spell in zip(BATCHES, kinds, spelt, strict=True):
            mine = [(unit, 1, day, 7, 9) for unit in units for _ in range(5)]
            rows = [
                (spell(row[0]), *row[1:]) for row in (*(r for r in base["sales"].rows if r[2] == day), *mine)
            ]
            tables[f"sales@{day}"] = RawRows(SALES.replace("link INT", f"link {kind}"), rows)
        return tables

    text = stream(2, "delta: 0").replace("columns: {day:", "columns: {link: {type: int}, day:")
    return measure(text, side(VICTIM), side(), folder, batches=BATCHES)


def partition(mechanism: str, axes: str = "sales.size", measures: str = "[count]") -> str:
    return catalog(axes=axes, measures=measures, mechanism=f"{mechanism}, data_dependent: allow")


def wide_plane() -> str:
    """Two axes of enough leaves for blocks."""
    text = partition(", mechanism: blocks", "sales.day, sales.size", "[count, sales.amount]")
    return text.replace("size: {type: int, lower: 0, upper: 7}", "size: {type: int, lower: 0, upper: 31}")


BOUGHT = (
    ", mechanism: asked, nonnegative: false, questions: "
    "[[[[[5, 8]], [[4, 8]]]], [[[[6, 8]], [[3, 8]]]], [[[[2, 4]], [[2, 3]]], [[[7, 8]], [[7, 8]]]]]"
)
PURE, DELTA = "delta: 0", "delta: 1e-6"
REPLACED, REPLACED_DELTA = "neighbours: replace_one", "delta: 1e-6, neighbours: replace_one"
PLANE = "sales.day, sales.size, person.age"
LEVELS = ", mechanism: struct_construct"
DEAR_ROW = [(3, 1, DAYS[-1], 7, 9)]
WAY = ("orders", "account")

JOINTS = (
    Joint("shared keys, a tree", one_more(
        catalog(way=WAY[:1], measures="[count]", mechanism=", mechanism: lue_dptree"), 9, WAY[:1]), TIGHT),
    Joint("shared keys, hers before everybody's", one_more(
        catalog(way=WAY[:1], axes="orders.kind", measures="[count]"), 9, WAY[:1], unit=-1), TIGHT),
    Joint("shared keys, weighted rows, a person who stands twice", one_more(catalog(
        way=WAY[:1], axes="person.age", measures="[count]", bounds=WEIGHTS), 9, WAY[:1]),
        TIGHT, slow=True),
    Joint("shared keys, bounds chosen from data", one_more(
        catalog(way=WAY[:1], axes="orders.kind", bounds="max_ids: auto,", mechanism=""), 9, WAY[:1]), ANY, slow=True),
    Joint("shared keys, bounds chosen from data under a delta", one_more(catalog(
        way=WAY[:1], axes="orders.kind", bounds="max_ids: auto,", promise=DELTA, mechanism=""), 9, WAY[:1]), ANY),
    Joint("shared keys, a stream", one_more(
        stream(2, PURE, way=WAY[:1]), 9, WAY[:1], batches=DAYS), ANY, slow=True),
    Joint("snowflake, the axis on the way", one_more(
        catalog(way=WAY, axes="account.kind", measures="[count]", mechanism=LEVELS), 9, WAY), TIGHT, slow=True),
    Joint("keys that are NULL, NaN or no whole number", nan_keys, TIGHT),
    Joint("hundreds of rows, dense Gaussian rows", one_more(
        catalog(promise=DELTA, mechanism=", mechanism: gaussian")), TIGHT, slow=True),
    Joint("hundreds of rows, Gaussian cells", one_more(catalog(promise=DELTA)), TIGHT),
    Joint("weighted rows over two axes", one_more(
        catalog(bounds=WEIGHTS, axes="sales.day, sales.size")), TIGHT),
    Joint("rows beyond the bound are measured", one_more(
        catalog(bounds="max_ids: 4, clipped_share: 0.05,"), 400), TIGHT),
    Joint("rows beyond the bound, as many as are measured", one_more(
        catalog(bounds="max_ids: 4, clipped_share: 0.05,"), 4 + reach(4)), TIGHT, slow=True),
    Joint("rows beyond the bound, one more than is measured, under a delta", one_more(
        catalog(bounds="max_ids: 4, clipped_share: 0.05,", promise=DELTA), 4 + reach(4) + 1), TIGHT),
    Joint("rows beyond the bound of another person in her place", one_more(
        catalog(bounds="max_ids: 4, clipped_share: 0.05,", promise=REPLACED), 4 + reach(4),
        replaced=True, rival=5 + reach(4)), TIGHT, slow=True),
    Joint("values beyond the bounds are measured", values_beyond(
        catalog(bounds=f"max_ids: 4, clipped_share: 0, {EXCESS}"), 400), TIGHT),
    Joint("values beyond both bounds, weighted rows", values_beyond(
        catalog(bounds=f"max_ids: 4, clipped_share: 0, bounding: weight, {EXCESS}"), 400, -400), 0.0, slow=True),
    Joint("values beyond the bounds, under a delta", values_beyond(
        catalog(bounds=f"max_ids: 4, clipped_share: 0, {EXCESS}", promise=DELTA), 20), TIGHT, slow=True),
    Joint("values beyond the bounds of another person in her place", values_beyond(
        catalog(bounds=f"max_ids: 4, clipped_share: 0, {EXCESS}", promise=REPLACED), 400, replaced=True),
        TIGHT, slow=True),
    Joint("values beyond the bounds, bounds of rows chosen", values_beyond(
        catalog(bounds=f"max_ids: auto, {EXCESS}", mechanism=""), 400), 0.0, slow=True),
    Joint("values beyond the bounds, bounds of rows chosen under a delta", values_beyond(
        catalog(bounds=f"max_ids: auto, {EXCESS}", promise=DELTA, mechanism=""), 400), 0.0, slow=True),
    Joint("a row with a value beyond the bounds", values_beyond(
        catalog(unit="row").replace("campaign},", f"campaign}}, {EXCESS}"), 400, unit=3), TIGHT),
    Joint("a CSV line", csv_line(b"3,1,2025-01-08,7,9,x"), TIGHT),
    Joint("a CSV line with an open quote", csv_line(b'3,1,2025-01-08,7,9,"open'), 0.0),
    Joint("a SELECT over the rows", sql_source, TIGHT),
    Joint("several facts of one unit, a residual design", two_facts, TIGHT),
    Joint("bounds chosen from data, under a delta", one_more(
        catalog(bounds="max_ids: auto,", promise=DELTA, mechanism=""), 5000), ANY),
    Joint("bounds chosen from data, pure", one_more(
        catalog(bounds="max_ids: auto,", mechanism=""), 5000), ANY, slow=True),
    Joint("bounds chosen from data, pure, a count", one_more(
        catalog(bounds="max_ids: auto,", measures="[count]"), 5000), ANY, slow=True),
    Joint("another person in her place", one_more(catalog(promise=REPLACED), 9, replaced=True), TIGHT, slow=True),
    Joint("another person in her place, under a delta", one_more(
        catalog(promise=REPLACED_DELTA, measures="[count]"), 9, replaced=True), HALF),
    Joint("a campaign that stands twice", row_more(
        catalog(unit="row", axes="campaign.medium"), DEAR_ROW), TIGHT, slow=True),
    Joint("a row", row_more(catalog(unit="row"), DEAR_ROW), TIGHT),
    Joint("another row in its place", row_more(
        catalog(unit="row", promise=REPLACED), DEAR_ROW, replaced=True), TIGHT, slow=True),
    Joint("DiffHR", one_more(partition(", mechanism: diffhr")), TIGHT),
    Joint("a noisy signal, then a tree", one_more(partition(", mechanism: signal")), 0.7),
    Joint("blocks", one_more(wide_plane()), TIGHT, slow=True),
    Joint("a cube", one_more(
        catalog(promise=DELTA, axes=PLANE, mechanism=", ways: 2")), TIGHT),
    Joint("bought", one_more(catalog(axes="sales.day, person.age", mechanism=BOUGHT)), TIGHT),
    Joint("bought under a delta, weighted rows", one_more(catalog(
        axes="sales.day, person.age", mechanism=BOUGHT, promise=DELTA, bounds=WEIGHTS)), TIGHT, slow=True),
    Joint("different people", one_more(
        catalog(axes="sales.size, person.age", measures="{count: 0.5, people: 0.5}", mechanism="")), TIGHT, slow=True),
    Joint("a stream", in_each_batch(stream(2, PURE)), TIGHT),
    Joint("a stream under a delta", in_each_batch(stream(1, DELTA)), TIGHT, slow=True),
    Joint("a stream under a delta, several batches of a person", in_each_batch(stream(3, DELTA)), 0.85),
    Joint("a stream under a delta, fda", in_each_batch(stream(4, DELTA, "fda")), 0.4, slow=True),
    Joint("a stream under a delta, prefix", in_each_batch(stream(4, DELTA, "prefix")), 0.2, slow=True),
    Joint("a stream under a delta, tree", in_each_batch(stream(3, DELTA, "tree")), TIGHT, slow=True),
    Joint("a stream under a delta, spectral", in_each_batch(stream(3, DELTA, "spectral")), 0.6, slow=True),
    Joint("a stream that ends, spectral", in_each_batch(stream(3, DELTA, "spectral, ends: true")), 0.85, slow=True),
    Joint("a stream that ends, a batch a person", in_each_batch(stream(1, DELTA, "spectral, ends: true")), TIGHT,
          slow=True),
    Joint("a reported column", lambda folder: one_person_more(folder, PROMISES[0], CASES["once"]), 0.85, slow=True),
    Joint("a stream whose types change", changing_types, TIGHT, slow=True),
    *(Joint(f"CSV bytes {i}", csv_line(_as_sale(line)), 0.0, slow=True) for i, line in enumerate(HOSTILE)),
)  # fmt: skip


def by_name(name: str) -> Callable[[Path], Loss]:
    """The measurement of one joint."""
    return next(joint.measured for joint in JOINTS if joint.name == name)
