"""Made-up stars of people, facts and public tables whose columns all correlate through one number of a person.

Each person has a latent number z. Rows a person, categories, amounts, flags, times, missing values and broken keys all
hang on z, so whoever owns more rows differs in every column: errors that independent columns would average out stay.

| table | rows |
|---|---|
| `person` | units: region, age, income, member, joined, home |
| `visit` | a fact by the chosen law: channel, amount, pieces, score, online, happened |
| `loan` | a second fact, by -z: genre, fee, taken_on |
| `item` | a fact under `visit`: colour, price |
| `place`, `area` | public; `place` is reached from `visit` and from `person`, and has rows that neither path uses |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LAWS = ("ones", "poisson", "geometric", "lognormal", "pareto", "few")
DAYS = 540
"""From 2024-01-01 on."""
MOST_ROWS = 120_000
REGIONS = ("north", "south", "east", "west")
CHANNELS = ("web", "shop", "phone", "fair", "post", "app", "agent", "desk", "gift")
GENRES = tuple(f"genre {i:02}" for i in range(30))
COLOURS = ("red", "green", "blue", "white")
KINDS = ("city", "town", "village", "island", "harbour")
"""Kinds of places; no place that is used is a harbour."""
ZONES = ("inner", "middle", "outer")


@dataclass(frozen=True)
class Knobs:
    """One star's laws and shares.

    Args:
        people: how many.
        law: of rows of `visit` a person.
        second, child, snowflake, homes: whether there are `loan`, `item`, `area`, and places of people.
        signed: whether amounts may be negative (returns).
        sigma: standard deviation of log amounts.
        spend: by how much log amounts rise with the person's number.
        null: share of NULL scores and incomes, times exp(z).
        broken: share of foreign keys that are NULL or name no row, times exp(z/2).
        nobody: share of facts whose key of the person is NULL.
        stamps: whether `visit.happened` has a time of day.
        level: `user` or `row`.
        delta: of the promise.
        allow: whether noisy numbers may choose mechanisms.
        max_ids: `auto` or rows that count.
        bounds: `drafted`, `wide` (upper bounds of measures times 10) or `narrow` (divided by 5).
        coarse: whether numbers have ten bins wherever questions begin and end.
    """

    people: int = 2_000
    law: str = "geometric"
    second: bool = True
    child: bool = False
    snowflake: bool = False
    homes: bool = False
    signed: bool = False
    sigma: float = 1.0
    spend: float = 0.3
    null: float = 0.01
    broken: float = 0.0
    nobody: float = 0.0
    stamps: bool = False
    level: str = "user"
    delta: str = "1e-6"
    allow: bool = True
    max_ids: str = "auto"
    bounds: str = "drafted"
    coarse: bool = False


def drawn_knobs(seed: int, level: str | None = None) -> Knobs:
    """Knobs of a random star."""
    rng = np.random.default_rng([seed, 1])

    def one(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    knobs = Knobs(
        people=round(float(np.exp(rng.uniform(np.log(200), np.log(50_000))))), law=one(*LAWS),
        second=bool(rng.random() < 0.5), child=bool(rng.random() < 0.4), snowflake=bool(rng.random() < 0.4),
        homes=bool(rng.random() < 0.5), signed=bool(rng.random() < 0.3), sigma=one(0.5, 1.0, 1.5),
        null=one(0.0, 0.01, 0.1), broken=one(0.0, 0.0, 0.02), nobody=one(0.0, 0.0, 0.2),
        stamps=bool(rng.random() < 0.5), level=one("user", "user", "row"), delta=one("0", "1e-6"),
        allow=bool(rng.random() < 0.7), max_ids=one("auto", "auto", "3"),
        bounds=one("drafted", "drafted", "drafted", "wide", "narrow"), coarse=bool(rng.random() < 0.1),
        spend=one(0.3, 0.3, 0.8),
    )  # fmt: skip
    if knobs.law in (
        "pareto",
        "few",
    ):  # a handful of people would own nearly all amounts: fewer than noise can show
        knobs = replace(knobs, spend=0.3)
    knobs = knobs if level is None else replace(knobs, level=level)
    # Where rows are units a fact that another one names is a dimension, and nothing counts its rows.
    return replace(knobs, child=False) if knobs.level == "row" and rng.random() < 0.8 else knobs


class StarColumn(NamedTuple):
    """Values, a mask of NULLs, and SQL of the stored value that has the column in its braces."""

    values: Array
    missing: Array | None = None
    stored: str = "{}"


Columns = Mapping[str, StarColumn]
DECIMAL = "({} / 100)::DECIMAL(12, 2)"
DAY = "DATE '2024-01-01' + {}::INTEGER"
STAMP = "TIMESTAMP '2024-01-01' + to_minutes({})"


@dataclass(frozen=True)
class Star:
    """A made-up star.

    Args:
        seed: of all of its rows.
        knobs: its laws.
        tables: columns by table.
    """

    seed: int
    knobs: Knobs
    tables: Mapping[str, Columns]

    @property
    def public(self) -> tuple[str, ...]:
        """Names of the public tables."""
        return ("place", "area") if self.knobs.snowflake else ("place",)

    def write(self, folder: Path) -> None:
        """One Parquet file a table."""
        with duckdb.connect() as database:
            for name, columns in self.tables.items():
                values = {column: each.values for column, each in columns.items()}
                masks = {f"{c}__": each.missing for c, each in columns.items() if each.missing is not None}
                database.register("raw", {**values, **masks})
                select = ", ".join(_stored(column, each) for column, each in columns.items())
                database.execute(
                    f"COPY (SELECT {select} FROM raw) TO '{folder}/{name}.parquet' (FORMAT parquet)"
                )
                database.unregister("raw")

    def exact(self, folder: Path) -> duckdb.DuckDBPyConnection:
        """DuckDB over the same rows; of a person's facts those that are somebody's (`differences.NOBODY`)."""
        database = duckdb.connect()
        for name in self.tables:
            database.execute(f"CREATE TABLE {name} AS FROM '{folder}/{name}.parquet'")
        if self.knobs.level == "user":
            for name in ("visit", "loan"):
                if name in self.tables:
                    database.execute(f"DELETE FROM {name} WHERE person_id IS NULL")
            if "item" in self.tables:
                database.execute(
                    "DELETE FROM item WHERE visit_id IS NULL OR visit_id NOT IN (SELECT visit_id FROM visit)"
                )
        return database


def _stored(name: str, column: StarColumn) -> str:
    value = column.stored.format(name)
    return (
        f"{value} AS {name}"
        if column.missing is None
        else f"CASE WHEN NOT {name}__ THEN {value} END AS {name}"
    )


def generate(seed: int, knobs: Knobs) -> Star:
    """Draw a star.

    Args:
        seed: of everything.
        knobs: its laws.
    """
    rng = np.random.default_rng([seed, 2])
    z = rng.normal(size=knobs.people)
    places = int(rng.integers(12, 60))
    tables: dict[str, Columns] = {"place": _places(rng, knobs, places)}
    if knobs.snowflake:
        tables["area"] = {  # nothing lies in the last one
            "area_id": StarColumn(np.arange(7)),
            "zone": StarColumn(_texts((*ZONES, "moor"), np.append(np.arange(6) % 3, 3))),
        }
    people = np.arange(knobs.people) * 7 + 11
    tables["person"] = _people(rng, knobs, z, people, places)
    rows = _rows_a_person(rng, knobs.law, z)
    who = np.repeat(np.arange(knobs.people), rows)
    tables["visit"] = _visits(rng, knobs, z, people, who, places)
    if knobs.child:
        lines = rng.poisson(np.exp(0.3 * z[who]))[: len(who)]
        parent = np.repeat(np.arange(len(who)), lines)[:MOST_ROWS]
        tables["item"] = _items(rng, knobs, z[who[parent]], parent)
    if knobs.second:
        again = np.repeat(np.arange(knobs.people), _rows_a_person(rng, "geometric", -z))
        tables["loan"] = _loans(rng, knobs, z, people, again)
    return Star(seed, knobs, tables)


def _rows_a_person(rng: np.random.Generator, law: str, z: Array) -> Array:
    """Rows of each person, at most `MOST_ROWS` in all."""
    laws: dict[str, Callable[[], Array]] = {
        "ones": lambda: np.ones(len(z), dtype=np.int64),
        "poisson": lambda: rng.poisson(3 * np.exp(0.4 * z)),
        "geometric": lambda: rng.geometric(1 / (1 + 4 * np.exp(0.5 * z))),
        "lognormal": lambda: np.rint(np.exp(1.2 + 1.0 * z + 0.4 * rng.normal(size=len(z)))).astype(np.int64),
        "pareto": lambda: np.floor((1 - _uniform(rng, z)) ** (-1 / 1.8)).astype(np.int64),
        "few": lambda: np.where(z > np.quantile(z, 0.98), 60, 1),
    }
    rows = np.minimum(laws[law](), 3_000)
    total = rows.sum()
    return rows if total <= MOST_ROWS else np.ceil(rows * MOST_ROWS / total).astype(np.int64)


def _uniform(rng: np.random.Generator, z: Array) -> Array:
    """Uniform numbers that rise with z."""
    mixed = np.argsort(np.argsort(z + 0.5 * rng.normal(size=len(z))))
    return np.asarray((mixed + 0.5) / len(z))


def _texts(words: tuple[str, ...], which: Array) -> Array:
    return np.array(words, dtype=object)[which]


def _zipf(rng: np.random.Generator, count: int, size: int) -> Array:
    weights = np.arange(1, count + 1) ** -rng.uniform(0.9, 1.1)
    return rng.choice(count, size, p=weights / weights.sum())


def _category(rng: np.random.Generator, count: int, z: Array, who: Array | None = None) -> Array:
    """Skewed categories that z shifts; 40% of a person's rows lie in one of her own."""
    size = len(z)
    drawn = np.where(
        rng.random(size) < 0.3,
        np.clip(np.rint(count / 2 + z * count / 5), 0, count - 1),
        _zipf(rng, count, size),
    )
    if who is not None and size:
        favourite = _zipf(rng, count, int(who.max()) + 1)
        drawn = np.where(rng.random(size) < 0.4, favourite[who], drawn)
    return drawn.astype(np.int64)


def _money(rng: np.random.Generator, knobs: Knobs, z: Array, scale: float) -> Array:
    """Cents, log-normal, dearer with z; some negative where they are signed."""
    cents = np.rint(100 * scale * np.exp(knobs.sigma * rng.normal(size=len(z)) + knobs.spend * z))
    return cents * np.where(rng.random(len(z)) < 0.15, -1, 1) if knobs.signed else cents


def _share(rng: np.random.Generator, share: float, z: Array) -> Array | None:
    """NULLs in so many rows; None without any."""
    return rng.random(len(z)) < share * z if share else None


def _days(rng: np.random.Generator, z: Array) -> Array:
    """Later days are busier, and those of larger z come later."""
    return np.clip(DAYS * rng.beta(1.6 + 0.2 * np.clip(z, -2, 2), 1.1, len(z)), 0, DAYS - 1).astype(np.int64)


def _foreign(rng: np.random.Generator, knobs: Knobs, keys: Array, z: Array) -> StarColumn:
    """Foreign keys, some NULL and some of no row."""
    if not knobs.broken:
        return StarColumn(keys)
    odd = rng.random(len(keys)) < knobs.broken * np.exp(z / 2)
    dangling = odd & (rng.random(len(keys)) < 0.5)
    return StarColumn(np.where(dangling, 900_001, keys), odd & ~dangling)


def _places(rng: np.random.Generator, knobs: Knobs, places: int) -> Columns:
    number = np.arange(places + 5)  # nobody goes to the last five
    kind = np.where(number < places, _zipf(rng, len(KINDS) - 1, len(number)), len(KINDS) - 1)
    where = number % 6
    columns = {"place_id": StarColumn(number + 1), "kind": StarColumn(_texts(KINDS, kind))}
    if knobs.snowflake:
        return columns | {"area_id": StarColumn(where)}
    return columns | {"zone": StarColumn(_texts(ZONES, where % 3))}


def _people(rng: np.random.Generator, knobs: Knobs, z: Array, people: Array, places: int) -> Columns:
    columns = {
        "person_id": StarColumn(people),
        "region": StarColumn(_texts(REGIONS, _category(rng, 4, z))),
        "age": StarColumn(
            np.clip(np.rint(45 + 8 * z + 12 * rng.normal(size=len(z))), 18, 95).astype(np.int64)
        ),
        "income": StarColumn(
            np.rint(
                np.clip(np.exp(10.2 + 0.3 * z + 0.4 * rng.normal(size=len(z))), 5_000, 250_000) / 10
            ).astype(np.int64)
            * 10,
            _share(rng, knobs.null, np.exp(z)),
        ),
        "member": StarColumn(rng.random(len(z)) < 1 / (1 + np.exp(-z))),
        "joined": StarColumn(_days(rng, z) - 300, None, DAY),
    }
    if knobs.homes:
        columns["place_id"] = _foreign(rng, knobs, _category(rng, places - 4, z) + 1, z)
    return columns


def _visits(
    rng: np.random.Generator, knobs: Knobs, z: Array, people: Array, who: Array, places: int
) -> Columns:
    of = z[who]
    day = _days(rng, of)
    hour = np.clip(np.rint(12 + 3 * rng.normal(size=len(who)) + of), 0, 23).astype(np.int64)
    minutes = day * 1440 + hour * 60 + rng.integers(60, size=len(who))
    return {
        "visit_id": StarColumn(np.arange(len(who))),
        "person_id": StarColumn(people[who], rng.random(len(who)) < knobs.nobody if knobs.nobody else None),
        "place_id": _foreign(rng, knobs, _category(rng, places, of, who) + 1, of),
        "channel": StarColumn(_texts(CHANNELS, _category(rng, 9, of, who))),
        "amount": StarColumn(_money(rng, knobs, of, 30), None, DECIMAL),
        "pieces": StarColumn(1 + rng.poisson(2 * np.exp(0.3 * of))),
        "score": StarColumn(
            np.clip(np.rint(3 + 0.7 * of + rng.normal(size=len(who))), 1, 5).astype(np.int64),
            _share(rng, knobs.null, np.exp(of)),
        ),
        "online": StarColumn(rng.random(len(who)) < 1 / (1 + np.exp(-of))),
        "happened": StarColumn(minutes, None, STAMP) if knobs.stamps else StarColumn(day, None, DAY),
    }


def _items(rng: np.random.Generator, knobs: Knobs, of: Array, parent: Array) -> Columns:
    return {
        "visit_id": _foreign(rng, knobs, parent, of),
        "colour": StarColumn(_texts(COLOURS, _category(rng, 4, of))),
        "price": StarColumn(np.abs(_money(rng, knobs, of, 8)), None, DECIMAL),
    }


def _loans(rng: np.random.Generator, knobs: Knobs, z: Array, people: Array, who: Array) -> Columns:
    of = -z[who]
    return {
        "person_id": StarColumn(people[who], rng.random(len(who)) < knobs.nobody if knobs.nobody else None),
        "genre": StarColumn(_texts(GENRES, _category(rng, 30, of, who))),
        "fee": StarColumn(np.abs(_money(rng, knobs, of, 3)), None, DECIMAL),
        "taken_on": StarColumn(_days(rng, of), None, DAY),
    }
