"""Rows made up for a catalog, and neighbours of one unit that aim at what bounds it.

Public tables keep their rows. Private ones are made up from what the catalog says in public: domains, keys, paths. A
crowd of a few dozen units stands in both sides; one unit comes and goes, in several manners:

| manner | its rows | aims at |
|---|---|---|
| dear | as many as count and are measured beyond, in one cell, each measure at its upper bound | the whole claim |
| many | five hundred and more beyond that | bounds, and what is chosen from how many rows people own |
| spread | as many as count, anywhere in their domains | rows of different cells, dense and zero-sum ones |
| new | private keys that nobody else has, as many as count | one is shown with chance delta / 2 at most |
| odd | NULL, beyond every domain, dangling; rows with everybody's keys on the way; three rows of itself | the joins |

**Privacy**: opens no private table. Public rows are read from the catalog's source.

Two sides that differ in one unit, each published whole by the code that publishes: rows in, exact loss out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from fractions import Fraction
from functools import cached_property, partial
from math import ceil
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

import duckdb

from dpsql.budget import NEIGHBOURS
from dpsql.budget.curve import people_at
from dpsql.catalog import Catalog
from dpsql.catalog.base import from_units
from dpsql.catalog.columns import Column
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.private_columns import private_columns, reported_columns
from dpsql.catalog.source import Source
from dpsql.central.axes import open_public
from dpsql.central.bounding import DrawnRelease, reach
from dpsql.central.central import publish_release, undrawn
from dpsql.central.plan import SURE, key_plans
from dpsql.curator.prove.layouts import RawRows, SourceLayout
from dpsql.curator.prove.loss import Distinguished, Loss, LossNoise, RecordedPair, record_pair, slot_loss
from dpsql.ledger.store import ledger_entries
from dpsql.local.mechanisms.channel import channel_of
from dpsql.local.survey import ReportProvenance, write_items
from dpsql.noise import insecure_test_entropy
from dpsql.row_expressions import identifier
from dpsql.row_expressions.expression import row_expression
from dpsql.scratch import scratch
from dpsql.streams.plan import batch_bounds, stream_column
from dpsql.streams.publish import Arrival, Chance, append_batch

KEY = b"k" * 32
"""Which of a unit's rows are sampled follows from it; the claim holds for every key, so both sides share one."""
STREAM_SECRET = 7
LATER = datetime(2100, 1, 1)


class NeighbourSide(NamedTuple):
    """One of two neighbours.

    Args:
        catalog: reads its rows and keeps its ledger in a folder of its own.
        target: the release to make.
        arrivals: the batches of a stream, in order; none for a release at once.
    """

    catalog: Catalog
    target: Path
    arrivals: tuple[Arrival, ...] = ()

    def publish(self, noise: LossNoise, drawn: Callable[[DrawnRelease], None] = undrawn) -> object:
        """Make the release; what is public of it. `drawn` sees its noisy integers, but those of a stream."""
        if not self.arrivals:
            published = publish_release(self.catalog, self.target, noise=noise, key=KEY, drawn=drawn)
            return _contents(published.path)
        for arrival in self.arrivals:
            chance = Chance(noise, insecure_test_entropy(STREAM_SECRET))
            append_batch(self.catalog, self.target, arrival, chance)
        return [_contents(path) for path in sorted(self.target.glob("states/*"))]


class MeasuredPair(NamedTuple):
    """A published pair.

    Args:
        loss: by draw, and what the left side's ledger was charged.
        draws: exact and noisy integers of both sides.
        drawn: the noisy integers of the left side's release by statistic; None of a stream.
    """

    loss: Loss
    draws: RecordedPair
    drawn: DrawnRelease | None


def measure_pair(left: NeighbourSide, right: NeighbourSide, seed: int) -> MeasuredPair:
    """Publish two neighbours end to end and measure what tells them apart.

    Args:
        left, right: alike but for one unit's rows.
        seed: of the noise.

    Raises:
        Distinguished: something but noisy numbers differs.
    """
    releases: list[DrawnRelease] = []
    draws = record_pair(partial(left.publish, drawn=releases.append), right.publish, seed)
    (ledger_entry,) = ledger_entries(ledger_path(left.catalog))
    spent = tuple((line.purpose, line.amount) for line in ledger_entry.spend_lines())
    if releases:  # what was drawn may have other parts than what was planned before keys were found
        spent = tuple((line.purpose, line.amount) for line in releases[0].plan.lines)
    charged, delta = Fraction(ledger_entry.cost), Fraction(ledger_entry.key_cost)
    rounds = sum((line.amount for line in ledger_entry.spend_lines() if line.delta), Fraction(0))
    moves = NEIGHBOURS[left.catalog.privacy.neighbours].moves
    key_losses = tuple(map(slot_loss, draws.moved))
    for (_, step, _), drawn in zip(draws.moved, key_losses, strict=True):
        slots, (mu2, eta, room) = max(drawn.moved, moves * step.keys), step.price
        if room > charged - rounds:
            raise Distinguished("slots count on more than remains of the charge after all rounds of keys")
        if slots * mu2 > step.charge or 2 * slots * eta > step.delta:
            raise Distinguished("slots of neighbours cost more than their round is charged")
    losses = (*key_losses, *draws.losses)
    loss = Loss(losses, charged, ledger_entry.currency.name, spent, delta, draws.chance)
    return MeasuredPair(loss, draws, releases[0] if releases else None)


def _contents(path: Path) -> object:
    """All rows of a release file but the identity that each publish draws for itself."""
    with scratch(path, read_only=True) as release:
        names = release.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() ORDER BY 1"
        ).fetchall()
        return {str(name): _table(release, str(name)) for (name,) in names}


def _table(release: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    rows = release.execute(f"SELECT * FROM {identifier(name)}").fetchall()
    return [str(row) for row in rows if "release_id" not in str(row[0])]


CROWD, NOBODYS = 30, 8
"""Units that stay, and rows of each private table that nobody owns."""
VICTIM, RIVAL = 900, 901
CHOSEN = 8
"""Rows that count where publishing chooses how many: nobody knows beforehand."""
MOST_BATCHES = 6
FREE = 10**8
"""The largest number, in units, of a column that states no bounds: expressions of it pass theirs."""
KEYS = 1000
"""Each unit has so many key numbers of its own."""
TYPES = {
    "int": "BIGINT", "date": "DATE", "timestamp": "TIMESTAMP", "string": "VARCHAR", "bool": "BOOLEAN",
}  # fmt: skip
BEYOND = {"int": "1000000000000", "decimal": "1000000000000", "date": "9999-12-31", "timestamp": "9999-12-31",
          "string": "?", "bool": None}  # fmt: skip

At = Callable[[float], object]
"""A place between 0 and 1 -> the value that stands there in a domain, or the key in a list."""


class Manner(NamedTuple):
    """Rows of the unit that is added or removed.

    Args:
        name: as the table above.
        where: (values of a column by their places, what lies beyond them, chance) -> one value.
        times, more: rows of each counted table: so many times those that count, those that are measured beyond, and so
            many more.
        numbers: rows of some counted tables; of the others as `times` and `more` say.
        copies: rows of the unit's own table.
        stands: place of keys that rows name and of columns that no sum is made of, as rules may drop rows at the
            ends of domains; None: as `where`.
        claims: whether rows on the way to the unit also carry everybody else's keys.
        new: whether its private keys are nobody else's.
    """

    name: str
    where: Callable[[At, object, Random], object]
    times: int = 1
    more: int = 0
    numbers: Mapping[str, int] = MappingProxyType({})
    copies: int = 1
    stands: float | None = None
    claims: bool = False
    new: bool = False


DEAR = Manner("dear", lambda at, beyond, rng: at(1.0), stands=0.5)
MANY = Manner("many", lambda at, beyond, rng: at(1.0), 1, 500, copies=5, stands=0.3)
SPREAD = Manner("spread", lambda at, beyond, rng: at(rng.random()))
ODD = Manner(
    "odd", lambda at, beyond, rng: rng.choice([None, beyond, *[at(rng.random()) for _ in range(4)]]), 3, copies=3,
    claims=True,
)  # fmt: skip
CHEAP = Manner("cheap", lambda at, beyond, rng: at(0.0), stands=0.7)
MANNERS = (DEAR, MANY, SPREAD, ODD)
NEW = Manner("new", lambda at, beyond, rng: at(1.0), stands=0.5, new=True)
MOST_CROWD = 2_000
"""Units that make private keys common, at most."""
FIRST_LATER = 1_000
"""Number of the first unit beyond the crowd of other catalogs."""


class MadeUpColumn(NamedTuple):
    """One column of a made-up table.

    Args:
        name, kind: as in CREATE TABLE.
        at: its values, or the keys that it may name.
        beyond: what is no such value.
        own: the table on the way to the unit whose key it holds; empty for others.
        summed: whether sums are made of it, so that its largest value moves most.
        fresh: makes a private key that nobody has; None where the values are listed.
    """

    name: str
    kind: str
    at: At
    beyond: object
    own: str = ""
    summed: bool = False
    fresh: Callable[[Random], object] | None = None


PublicRows = tuple[Mapping[str, str], Sequence[tuple[object, ...]]]
"""A public table: its columns with their types, and its rows."""


class MadeUpStar:
    """A catalog with made-up rows.

    Args:
        catalog: that is published.
        public: its public tables as they are.
        seed: of what is made up.
        moved: `table.column` -> where a value of a place in [0, 1] stands instead.
    """

    def __init__(
        self,
        catalog: Catalog,
        public: Mapping[str, PublicRows],
        seed: int,
        moved: Mapping[str, Callable[[float], float]] = MappingProxyType({}),
    ) -> None:
        self.catalog, self.public, self.seed, self.moved = catalog, public, seed, moved

    @cached_property
    def towards(self) -> dict[str, str]:
        """The foreign key of each owned table that leads on to the unit; none of the unit's own table."""
        foreign_keys = {}
        for of, table in self.catalog.star.tables.items():
            if table.unit is not None and of != self.catalog.privacy.unit.table:
                for key in (*table.unit.path, table.unit.column):
                    foreign_keys[of] = key
                    of = self.catalog.tables[of].foreign_keys[key].references
        return foreign_keys

    @cached_property
    def owned(self) -> tuple[str, ...]:
        """Tables whose rows are units' own, those nearest to the unit first; every counted one where rows are units."""
        unit = self.catalog.privacy.unit.table
        if unit is None:
            return tuple(self.catalog.star.tables)
        tables = [unit]
        while len(tables) <= len(self.towards):
            tables += [of for of in self.towards if of not in tables and self._next(of) in tables]
        return tuple(tables)

    def _next(self, table: str) -> str:
        return self.catalog.tables[table].foreign_keys[self.towards[table]].references

    @cached_property
    def places(self) -> dict[str, tuple[MadeUpColumn, ...]]:
        """The columns of every private table."""
        private = [name for name in self.catalog.tables if name not in self.catalog.public_tables]
        return {name: tuple(self._places(name)) for name in private}

    def _places(self, name: str) -> Iterator[MadeUpColumn]:
        table = self.catalog.tables[name]
        left_out = {each.column.lower() for each in reported_columns(self.catalog) if each.table == name}
        left_out |= {computed.lower() for computed in (*table.derive, *table.measures)}
        if table.key is not None:
            yield MadeUpColumn(table.key, self._key_kind(name), lambda place: None, None)
            left_out.add(table.key.lower())
        for key, named in table.foreign_keys.items():
            if key.lower() not in left_out:
                parent = named.references if self.towards.get(name) == key else ""
                kind, keys = self._key_kind(named.references), self._keys(named.references)
                yield MadeUpColumn(key, kind, keys, str(10**9), parent)
                left_out.add(key.lower())
        used = {
            name.lower() for each in table.measures.values() for name in row_expression(each.expr).columns
        }
        for column, spec in table.written.items():
            if column.lower() not in left_out:
                summed = spec.measure or not spec.has_domain or column.lower() in used
                at = self._domain(column, spec, self.moved.get(f"{name}.{column}", float))
                fresh = None if spec.private_keys is None else FRESH[spec.type]
                yield MadeUpColumn(column, _kind(spec), at, BEYOND[spec.type], summed=summed, fresh=fresh)

    def _key_kind(self, table: str) -> str:
        key = str(self.catalog.tables[table].key).lower()
        if table in self.public:
            return {column.lower(): kind for column, kind in self.public[table][0].items()}[key]
        declared = {name.lower(): spec for name, spec in self.catalog.tables[table].columns.items()}
        return _kind(declared[key]) if key in declared else "BIGINT"

    def _public_values(self, table: str, name: str) -> list[object]:
        """A public column, in the order of the rows."""
        kinds, rows = self.public[table]
        place = [column.lower() for column in kinds].index(name.lower())
        return [row[place] for row in rows]

    def _keys(self, table: str) -> At:
        """Keys that rows may name: of a public table, or of one that nobody owns, or of the crowd."""
        if table in self.public:
            return _listed(self._public_values(table, str(self.catalog.tables[table].key)))
        return _listed([str(KEYS * unit) for unit in range(1, NOBODYS + 1)])

    def _domain(self, name: str, spec: Column, move: Callable[[float], float]) -> At:
        if spec.from_ is not None:
            return _listed(list(dict.fromkeys(self._public_values(spec.from_, name))))
        if spec.listed or spec.type == "bool":
            return _listed(list(spec.listed) or ["false", "true"])
        if spec.private_keys is not None:
            words = ["1", "2", "3"] if spec.type == "int" else ["x", "y", "z"]
            return _listed([word for word in words if word not in spec.private_keys.always] or words)
        if not spec.ordered:
            return _listed(["text"])
        low, high = spec.bounds if spec.lower is not None else (0, FREE)
        return lambda place: from_units(
            spec.type, low + round(move(place) * (high - low)), scale=spec.digits, grain=spec.grain
        )

    def rows_of(
        self, unit: int, manner: Manner, batches: Sequence[int] = ()
    ) -> dict[str, list[tuple[object, ...]]]:
        """The rows of one unit, by table.

        Args:
            unit: its number.
            manner: what they are like.
            batches: of a stream, those that it is in.
        """
        rng, rows = Random(f"{self.seed} {unit} {manner.name}"), dict[str, list[tuple[object, ...]]]()
        keys: dict[str, list[str]] = {}
        for table in self.owned:
            arrives = self.catalog.stream is not None and stream_column(self.catalog)[1] == table
            times = batches if arrives else (None,)
            number = self._number(table, manner)
            named = [str(KEYS * unit + i) for i in range(number * len(times))]
            if table == self.catalog.privacy.unit.table:
                named = named[:1] * len(named)  # each row is of the one unit
            keys[table] = named
            if manner.claims and table in map(self._next, self.towards) and table != self.owned[0]:
                named = [*named, *(str(KEYS * crowd_unit) for crowd_unit in range(1, CROWD + 1))]
            rows[table] = [
                self._row(table, key, manner, keys, times[i % len(times)], rng) for i, key in enumerate(named)
            ]
        return rows

    def _number(self, table: str, manner: Manner) -> int:
        if table == self.catalog.privacy.unit.table:
            return manner.copies
        if self.catalog.privacy.unit.table is None:
            return 1
        if table not in self.catalog.star.tables:
            return 2
        if table in manner.numbers:
            return manner.numbers[table]
        rule = self.catalog.star.tables[table].bounding
        measured = reach(rule.max_ids) + 1 if rule.clipped_share else 0
        return manner.times * (rule.max_ids or CHOSEN) + measured + manner.more

    def _row(
        self,
        table: str,
        key: str,
        manner: Manner,
        keys: Mapping[str, Sequence[str]],
        batch: int | None,
        rng: Random,
    ) -> tuple[object, ...]:
        """One row; what it names on the way to the unit is the unit's own."""
        row: list[object] = []
        time = None if self.catalog.stream is None else self.catalog.stream.column
        for place in self.places[table]:
            if place.name == self.catalog.tables[table].key:
                row.append(key)
            elif place.own:
                row.append(rng.choice(keys[place.own]))
            elif batch is not None and f"{table}.{place.name}" == time:
                row.append(self._begins(batch))
            elif place.fresh is not None and manner.new:
                row.append(place.fresh(rng))
            elif not place.summed and manner.stands is not None:
                row.append(place.at(manner.stands))
            else:
                row.append(manner.where(place.at, place.beyond, rng))
        return tuple(row)

    def _begins(self, batch: int) -> str:
        stream, _, column = stream_column(self.catalog)
        return str(batch_bounds(batch, str(column.lower), stream.grain)[0])

    @property
    def batches(self) -> range:
        """The batches of a stream that are appended: few of a long one; none of a release at once."""
        if self.catalog.stream is None:
            return range(0)
        return range(min(self.catalog.stream.horizon, MOST_BATCHES))

    def side(
        self,
        place: Path,
        layout: SourceLayout,
        *others: dict[str, list[tuple[object, ...]]],
        crowd: bool = True,
    ) -> NeighbourSide:
        """Write the crowd and some more rows, and the catalog that reads them.

        Args:
            place: a folder of its own.
            layout: how the tables are stored.
            others: rows by table.
            crowd: whether the units that stay are there; rows that nobody owns always are.
        """
        table_rows: dict[str, list[tuple[object, ...]]] = {name: [] for name in self.places}
        for rows in (*(self._crowd if crowd else self._crowd[:1]), *others):
            for name, new_rows in rows.items():
                table_rows[name] += new_rows
        made = {n: ({c.name: c.kind for c in self.places[n]}, rows) for n, rows in table_rows.items()}
        tables = {
            name: RawRows(", ".join(f"{identifier(column)} {kind}" for column, kind in kinds.items()), rows)
            for name, (kinds, rows) in {**made, **self.public}.items()
        }
        stored = layout.write(place, tables, self.catalog)
        source = Source.model_validate(stored | {"reports": self._reports(place, tables)})
        changes = {"source": source, "ledger": str(place / "ledger.duckdb")}
        arrivals = tuple(Arrival(self._begins(batch), None, LATER) for batch in self.batches)
        return NeighbourSide(self.catalog.model_copy(update=changes), place / "release.dpsql", arrivals)

    @cached_property
    def _crowd(self) -> list[dict[str, list[tuple[object, ...]]]]:
        """Rows that nobody owns, then the units that stay."""
        rng = Random(self.seed)
        shared = {
            name: [self._row(name, str(KEYS * i), SPREAD, {}, None, rng) for i in range(1, NOBODYS + 1)]
            for name in self.places
            if name not in self.owned
        }
        few = SPREAD._replace(name="crowd")
        units = [
            self.rows_of(unit, few, rng.sample(self.batches, min(2, len(self.batches))))
            for unit in (*range(1, CROWD + 1), *range(FIRST_LATER, FIRST_LATER + self._later))
        ]
        return [shared, *units]

    @cached_property
    def _later(self) -> int:
        """Units more than the crowd, so that private keys are shown: each holds most of three."""
        people = [  # of her three keys as many count as may
            2 * people_at(step.table, SURE) * max(1, 3 / step.keys)
            for plan in key_plans(self.catalog)
            for step in plan.rounds[-1:]
        ]
        return min(MOST_CROWD, ceil(max(people, default=0)))

    @property
    def manners(self) -> tuple[Manner, ...]:
        """The manners of the unit that comes and goes."""
        most = max((column.per_unit for column in private_columns(self.catalog) if column.rounds), default=0)
        return (*MANNERS, NEW._replace(more=most)) if most else MANNERS

    def _reports(self, place: Path, tables: Mapping[str, RawRows]) -> dict[str, str]:
        """Files of what devices reported, one item of everybody."""
        files = {}
        for reported in reported_columns(self.catalog):
            channel, key = channel_of(*reported.asked), str(self.catalog.tables[reported.table].key)
            at = [column.name for column in self.places[reported.table]].index(key)
            units = sorted({str(row[at]) for row in tables[reported.table].rows})
            files[reported.table] = f"{reported.table}.reports.parquet"
            answered = ReportProvenance(str(reported), "made up", channel.fingerprint)
            items = [(unit, 0, Random(unit).randrange(channel.items)) for unit in units]
            write_items(place / files[reported.table], answered, items)
        return files


def made_up(catalog: Catalog, seed: int = 0) -> MadeUpStar:
    """Read the public tables of a catalog, and nothing else.

    Args:
        catalog: with a source.
        seed: of what is made up.

    Raises:
        CatalogError, SourceError: a public table cannot be read.
    """
    with closing(open_public(catalog)) as engine:
        public = [name for name in catalog.tables if name in catalog.public_tables]
        tables = {name: (dict(engine.columns[name]), engine.public_rows(name)) for name in public}
    return MadeUpStar(catalog, tables, seed)


FRESH: Mapping[str, Callable[[Random], object]] = {
    "int": lambda rng: str(rng.randrange(10**9, 10**10)), "string": lambda rng: f"{rng.randrange(36**5):x}"
}  # fmt: skip
"""Private keys that nobody has, by the type of their column."""


def _kind(spec: Column) -> str:
    return f"DECIMAL(38, {spec.digits})" if spec.type == "decimal" else TYPES[spec.type]


def _listed(values: Sequence[object]) -> At:
    return lambda place: values[min(int(place * len(values)), len(values) - 1)]
