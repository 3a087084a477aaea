"""Keys that nobody listed: those found, each with a chance that follows from its number of people, and known ones.

    choose_keys    the step: counts from the engine, 64 bits a key batch by batch, what is not shown is dropped at once

A list is then a public fact of the release, as the rows of a public table are: `build_axis` reads both alike.

Keys may be listed before a release is made: `always`, and those of an earlier release of the lineage (`known`).
A refresh that names last month's release has its keys as leaves again, so series do not break, and what people's keys
weigh goes to what is new. A key whose count lay below twice its error there is left out, and may be found again: a
function of released numbers.

**Privacy**: docs/privacy/delta.md. Each round is a draw with a line (mu^2, delta) of its own in the ledger. Keys that
are not shown, how many they are and what was drawn for them stay in this module and are dropped batch by batch: they
are in no error, no progress line and no return value. Nothing of a list is printed before the release is sealed.
`always` is a part of the catalog; an earlier release is public, and the ledger has charged it.
**Source**: docs/method/rows.md, "The step".
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dpsql.axis.model import PublicTable
from dpsql.budget.curve import people_at
from dpsql.catalog import Catalog
from dpsql.catalog.derived import made_columns
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.private_columns import KeyUse, PrivateColumn, private_columns
from dpsql.central.axes import AxisMaker, axis_maker
from dpsql.central.hybrid import supplemented
from dpsql.central.placed_rows import carried, counted_rows, key_kind, leaf_of_row, require_columns
from dpsql.central.plan import EVEN, KeyPlan, KeyRound, key_plans, list_limits, plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.engines.counting import coefficients, with_offsets
from dpsql.engines.joined_rows import JoinSide, PlacedRows, UnitKey
from dpsql.engines.registry import Engine, Relations, kind_of
from dpsql.engines.summaries import counts_statement, key_sql, pairs_statement
from dpsql.errors import CatalogError, InternalError
from dpsql.ledger.files import file_hash
from dpsql.ledger.store import ledger_entries
from dpsql.matrices.reading import READINGS
from dpsql.noise import Noise
from dpsql.release import Release, open_release
from dpsql.release.format import KeyListMeta, KeyRoundMeta
from dpsql.release.request import requested
from dpsql.release.structure import refused, written_chances
from dpsql.release.write import KeyListPart

Key = str | int
SQL_TYPES: dict[str, Literal["VARCHAR", "BIGINT"]] = {"string": "VARCHAR", "int": "BIGINT"}
"""Type of a list's keys by the type of its column."""

PAIRS = "keys of units"
"""The named query of who has which key: computed once for both rounds of a column where rows may be stored."""

NO_SIZES: Mapping[str, int] = {}

GUESSED = 400
"""Keys that plans suppose of a list, unless the curator says another number."""


class KeyList(NamedTuple):
    """The list of one column, sorted by value.

    Args:
        column: `table.column`.
        kind: DuckDB type of the keys.
        keys: all leaves.
        rounds: in which each was found, from 1; 0 where it was listed before.
    """

    column: str
    kind: Literal["VARCHAR", "BIGINT"]
    keys: tuple[Key, ...]
    rounds: tuple[int, ...]

    @property
    def table(self) -> PublicTable:
        """As a public table."""
        return PublicTable(self.column, {"key": self.kind}, {"key": self.keys})


KeyLists = Mapping[str, KeyList]
"""The lists of a release by `table.column`."""


def made_up_lists(catalog: Catalog, sizes: Mapping[str, int]) -> dict[str, KeyList]:
    """Lists of so many keys that stand for those that will be found: for plans.

    Args:
        catalog: a checked catalog.
        sizes: `table.column` -> keys; `GUESSED` where nothing is said.
    """
    lists = {}
    for column in private_columns(catalog):
        size = sizes.get(column.name, min(GUESSED, column.keys.most or GUESSED))
        texts, always = column.spec.type == "string", always_keys(column)
        made_up: list[Key] = [f"key {i:06}" if texts else -1 - i for i in range(size)]
        lists[column.name] = _sorted_list(column, dict.fromkeys([*always, *made_up][:size], 0))
    return lists


def order_of(key: Key) -> tuple[int, bytes]:
    """Order of a key in a list: texts by their bytes, numbers as numbers."""
    return (0, key.encode()) if isinstance(key, str) else (key, b"")


def _sorted_list(column: PrivateColumn, found: Mapping[Key, int]) -> KeyList:
    """A list in the order of its values: texts by their bytes, numbers as numbers."""
    keys = sorted(found, key=order_of)
    return KeyList(column.name, SQL_TYPES[column.spec.type], tuple(keys), tuple(found[key] for key in keys))


class ListedKeys(NamedTuple):
    """Keys of a column that are listed already: `always`, and those of an earlier release.

    Args:
        keys: each once.
        release_id: of that release, if one is named.
    """

    keys: tuple[Key, ...]
    release_id: str | None = None


def stored_lists(release: Release) -> dict[str, KeyList]:
    """The lists of an open release.

    Raises:
        ReleaseError: one is not what its meta says.
    """
    lists = {}
    for i, meta in enumerate(release.meta.keys):
        columns = release.whole(f"keys_{i}")
        if any(np.any(np.ma.getmaskarray(values)) for values in columns.values()):
            raise refused(release.path, f"keys_{i} contains NULL")
        key, number = (np.ma.getdata(columns[name]).tolist() for name in ("key", "round"))
        lists[meta.column] = KeyList(meta.column, meta.kind, tuple(key), tuple(number))
    return lists


def fixed_list(column: PrivateColumn, listed: ListedKeys) -> KeyList:
    """The list of a column whose keys were all listed before."""
    return _sorted_list(column, dict.fromkeys(listed.keys, 0))


def always_keys(column: PrivateColumn) -> tuple[Key, ...]:
    """The public values of `always`, as keys."""
    always = column.keys.always
    return always if column.spec.type == "string" else tuple(dict.fromkeys(map(int, always)))


class KeyScan(NamedTuple):
    """The raw side before keys are chosen.

    Args:
        catalog, raw: the release being made; `prepare_tables` has run.
        plan: the release planned with empty lists; says which row of a key counts where nobody owns the rows.
        noise: where noise comes from.
        key: 32 secret bytes, fresh for each release, kept nowhere.
    """

    catalog: Catalog
    raw: Engine
    plan: ReleasePlan
    noise: Noise
    key: bytes


def choose_keys(scan: KeyScan, plans: Iterable[KeyPlan], known: Mapping[str, ListedKeys],
                limits: Mapping[str, int]) -> dict[str, KeyList]:  # fmt: skip
    """The step: find the keys of every column.

    Args:
        scan: the release being made.
        plans: of its columns.
        known: keys that are listed already, by column; they do not count and are leaves.
        limits: most keys of each list.

    **Privacy**: spends each round's line once. What is returned is a function of what was shown, of listed keys and of
    the release's secret.
    """
    lists, secret = {}, hashlib.sha256(b"keys" + scan.key).hexdigest()
    for plan in plans:
        column = plan.column
        listed = known[column.name].keys
        found: dict[Key, int] = {}
        relations = scan.raw.relations(f"counting keys of {column.name}")
        if plan.rounds:
            relations.make(PAIRS, pairs_of(scan, column))
        for number, step in enumerate(plan.rounds, start=1):
            # what a person's choice left out in round one has a fresh chance in round two
            drawn = scan._replace(key=hashlib.sha256(f"{column.name} {number}".encode() + scan.key).digest())
            found |= dict.fromkeys(_shown(drawn, relations, plan, step, [*listed, *found]), number)
        # The secret was unknown when keys were made: nobody can look for a text that comes first.
        order = sorted(
            (number, hashlib.md5(f"{secret}{key}".encode()).hexdigest(), key) for key, number in found.items()
        )
        kept = order[: max(0, limits[column.name] - len(listed))]
        rounds: dict[Key, int] = dict.fromkeys(listed, 0) | {key: number for number, _, key in kept}
        lists[column.name] = _sorted_list(column, rounds)
    return lists


def _shown(scan: KeyScan, relations: Relations, plan: KeyPlan, step: KeyRound,
           listed: Sequence[Key]) -> Iterator[Key]:  # fmt: skip
    """The keys of one round that are shown.

    **Privacy**: every key that somebody has gets 64 bits of its own. Counts, and keys that are not shown, are dropped
    here.
    """
    for pairs in relations.batches(key_statement(scan, plan.column, step.keys, listed)):
        keys = [key for key, _ in pairs]
        people = np.array([people for _, people in pairs], np.int64)
        shown = scan.noise.shown(step.table, people, ((plan.column.name, step), keys))
        yield from itertools.compress(keys, shown.tolist())


def pairs_of(scan: KeyScan, column: PrivateColumn) -> str:
    """The statement of who has which key of a column."""
    clean = key_sql(column, "value0", key_kind(scan.raw, column), scan.raw.dialect)
    sources = [_source(scan, column, use, number) for number, use in enumerate(column.uses)]
    return pairs_statement(sources, clean, scan.raw.dialect)


def key_statement(scan: KeyScan, column: PrivateColumn, most: int, listed: Sequence[Key]) -> str:
    """The statement that counts the people of a column's `PAIRS`, at most so many keys of one, without listed ones."""
    raw, dialect, relation = scan.raw, scan.raw.dialect, ""
    if listed:
        leaf = np.arange(len(listed), dtype=np.int64)
        relation = raw.lookup(f"listed keys of {column.name}", SQL_TYPES[column.spec.type], listed, leaf)
    kinds = {unit.kind for use in column.uses if (unit := _unit(scan, use))}
    c = coefficients(hashlib.sha256(b"keys" + scan.key).digest())
    kind = next(iter(kinds)) if len(kinds) == 1 else None
    offsets = partial(with_offsets, kind=kind, c=c, dialect=dialect) if kinds else None
    return counts_statement(dialect.identifier(PAIRS), relation, most, offsets, dialect)


def _unit(scan: KeyScan, use: KeyUse) -> UnitKey | None:
    """The key of the units that own a table's rows; None where each row is one."""
    owner = scan.catalog.star.tables[use.of].unit
    if owner is None:
        return None
    return UnitKey(owner.path, owner.column, kind_of(scan.raw, owner.table, owner.column))


def _source(scan: KeyScan, column: PrivateColumn, use: KeyUse, number: int) -> PlacedRows:
    """The counted rows of one table with the column's raw value; no axis drops any."""
    catalog, raw, star = scan.catalog, scan.raw, scan.catalog.star.tables[use.of]
    require_columns(raw, column.table, [column.column], made_columns(catalog.tables[column.table]))
    value = UnitKey(use.path, column.column, key_kind(raw, column))
    unit, joins = _unit(scan, use), star.joined([use.path])
    sides, digits = [], []
    for hop in (None, *joins):
        path, table = (hop.path, hop.table) if hop else ((), use.of)
        once = hop is not None and not hop.own and not catalog.tables[table].is_public
        leaves = []
        if once:
            axes = {i for s in scan.plan.statistics if s.of == use.of for i in s.axes}
            leaves = [leaf_of_row(catalog, raw, scan.plan, i) for i in sorted(axes)
                      if scan.plan.axes[i].axis.path == path]  # fmt: skip
        digits += [leaf.digit._replace(total=True, missing=0) for leaf in leaves]
        columns = [*carried(path, joins, unit), *([column.column] if path == use.path else [])]
        sides.append(
            JoinSide(
                path, raw.rows(catalog, table), hop.key if hop else "", tuple(dict.fromkeys(columns)),
                tuple(leaf.lookup for leaf in leaves if leaf.lookup), once, hop is not None and hop.drops,
                tuple(leaf.text for leaf in leaves if leaf.text),
            )
        )  # fmt: skip
    return PlacedRows(tuple(sides), tuple(digits), (), unit, f"k{number}s", (value,))


def empty_lists(catalog: Catalog) -> dict[str, KeyList]:
    """Lists without keys."""
    return {column.name: _sorted_list(column, {}) for column in private_columns(catalog)}


def listed_tables(lists: KeyLists) -> dict[str, PublicTable]:
    """Lists as public tables, by name."""
    return {name: found.table for name, found in lists.items()}


@dataclass
class ReleaseSelection:
    """Plan of a release: at once, or after the keys of private columns were found.

    Attributes:
        catalog, raw: the release being made.
        plan: the plan; before keys are found, with empty lists.
        plans: what finds the keys of each column; empty where there are none; without rounds where all are listed.
        limits: most keys of each list.
        listed: earlier keys of each column, which are leaves again.
        replanned: makes the plan from lists.
    """

    catalog: Catalog
    raw: Engine
    plan: ReleasePlan
    plans: tuple[KeyPlan, ...]
    limits: Mapping[str, int]
    listed: Mapping[str, ListedKeys]
    replanned: Callable[[KeyLists], ReleasePlan]

    @property
    def finds(self) -> bool:
        """True if there are keys to find."""
        return any(plan.rounds for plan in self.plans)

    @property
    def counts(self) -> dict[str, int]:
        """Planned counts for progress: never a number that follows from a list."""
        counts = {"statistics": len(self.plan.statistics), "axes": len(self.plan.axes)}
        return counts if self.plans else {**counts, "cells": self.plan.cells}

    def check(self, noise: Noise, key: bytes) -> None:
        """Refuse what the schema refuses, before anything is reserved; draws nothing. `prepare_tables` has run."""
        for of in dict.fromkeys(s.of for s in self.plan.statistics):
            counted_rows(self.catalog, self.raw, self.plan, of)
        for plan in self.plans:
            if plan.rounds:
                pairs_of(KeyScan(self.catalog, self.raw, self.plan, noise, key), plan.column)

    def chosen(
        self, noise: Noise, key: bytes, begin: Callable[[], None]
    ) -> tuple[ReleasePlan, tuple[KeyListPart, ...]]:
        """The plan to draw, and the lists of its private columns; finds the keys where there are some to find.

        Args:
            noise, key: as of `KeyScan`.
            begin: tells the ledger that key rounds begin.

        **Privacy**: spends the lines of the steps, once they have begun in the ledger.
        """
        if self.finds:
            begin()
        scan = KeyScan(self.catalog, self.raw, self.plan, noise, key)
        lists = choose_keys(scan, self.plans, self.listed, self.limits)
        if self.finds:
            self.plan = self.replanned(lists)
        return self.plan, tuple(
            list_part(plan, found, self.limits[name], self.listed[name].release_id)
            for (name, found), plan in zip(lists.items(), self.plans, strict=True)
        )


def open_selection(catalog: Catalog, raw: Engine, listed: Mapping[str, ListedKeys]) -> ReleaseSelection:
    """Plan a release, as far as that can be done before keys are found.

    Args:
        catalog: what is counted.
        raw: its raw side; public tables are read.
        listed: keys that each column lists already.

    Raises:
        CatalogError: a view has no room, with lists without keys or with as many as they may hold.

    **Privacy**: views are planned with none and with most keys before the first draw, so that no list makes one fail.
    """
    facts: dict[str, PublicTable] = {}

    def replanned(lists: KeyLists) -> ReleasePlan:
        maker = axis_maker(catalog, raw, listed_tables(lists), facts)
        return supplemented(plan_release(catalog, maker), catalog)

    plans = key_plans(catalog)
    empty = empty_lists(catalog)
    limits = list_limits(catalog, axis_maker(catalog, raw, listed_tables(empty), facts))
    for name, earlier in listed.items():
        if len(earlier.keys) > limits[name]:
            raise CatalogError(
                f"{name}: {len(earlier.keys)} keys of `known` and `always` are more than the list may hold",
                hint="raise `most` or `cells`, or leave `known` out",
            )
    if any(plan.rounds for plan in plans):
        _within_charge(replanned(made_up_lists(catalog, limits)))
        plan = replanned(empty)
    else:
        columns = private_columns(catalog)
        plan = replanned({column.name: fixed_list(column, listed[column.name]) for column in columns})
    return ReleaseSelection(catalog, raw, _within_charge(plan), plans, limits, listed, replanned)


def _within_charge(plan: ReleasePlan) -> ReleasePlan:
    """A plan, once its lines were compared with what its catalog is charged.

    Raises:
        InternalError: they add up to more.
    """
    if sum((line.amount for line in plan.lines), Fraction(0)) > plan.charge:
        raise InternalError("a plan costs more than its catalog is charged")
    return plan


def list_part(plan: KeyPlan, found: KeyList, most: int, known: str | None) -> KeyListPart:
    """A list as a release holds it.

    Args:
        plan: what found it.
        found: the list.
        most: keys that it could have had.
        known: id of the release that listed keys before, if any.
    """
    meta = key_list_meta(plan, found, most, known)
    return KeyListPart(meta, {"key": found.keys, "round": found.rounds})


def key_list_meta(plan: KeyPlan, found: KeyList, most: int, known: str | None) -> KeyListMeta:
    """Metadata of a list."""
    column = plan.column
    rounds = []
    for step in plan.rounds:
        mu2, delta, room = map(str, step.price)
        people, table = people_at(step.table, EVEN), written_chances(step.table)
        rounds.append(
            KeyRoundMeta(str(step.charge), str(step.delta), step.keys, mu2, delta, room, people, table)
        )
    return KeyListMeta(column.name, found.kind, len(found.keys), most, column.per_unit, tuple(rounds), known)


SECONDS = 300.0
"""Until reading an earlier release is stopped."""

FEWEST = 2.0
"""Standard errors that a known key's count must reach."""

KEYS_AT_ONCE = 256


def listed_keys(catalog: Catalog) -> dict[str, ListedKeys]:
    """The keys that each column lists already.

    Raises:
        CatalogError: `known` is not a release that this lineage's ledger has charged, or has no such column.
        ReleaseError: it cannot be read.
    """
    return {column.name: _listed(catalog, column) for column in private_columns(catalog)}


def _listed(catalog: Catalog, column: PrivateColumn) -> ListedKeys:
    always = always_keys(column)
    if column.keys.known is None:
        return ListedKeys(always)
    base = Path.cwd() if catalog.file is None else catalog.file.parent
    path, place = base / column.keys.known, f"tables.{column.table}.columns.{column.column}.categories.known"
    entries = {entry.release_id: entry for entry in ledger_entries(ledger_path(catalog))}
    with closing(open_release(path, insecure=True)) as release, requested(SECONDS):
        entry = entries.get(release.meta.release_id)
        if entry is None or entry.lineage != catalog.privacy.lineage or file_hash(path) != entry.sha256:
            raise CatalogError(
                f"{place}: {column.keys.known} is not a release that this lineage's ledger has charged",
                hint="name a release of this lineage as it was published",
            )
        stored = stored_lists(release).get(column.name)
        if stored is None:
            raise CatalogError(
                f"{place}: {column.keys.known} has no keys of {column.name}", hint="leave `known` out"
            )
        views = sorted(_counts(release, column, stored))
    worth = list(stored.keys)
    if views and column.rounds:  # where nothing is found, a key that is left out stays out
        # the first view has the least error; its third entry says which keys count
        worth = [key for key, counts in zip(stored.keys, views[0][2], strict=True) if counts]
    return ListedKeys(tuple(dict.fromkeys([*always, *worth])), release.meta.release_id)


def planning_lists(catalog: Catalog, sizes: Mapping[str, int] = NO_SIZES) -> dict[str, KeyList]:
    """Lists for a plan: those that are listed where nothing is found, else made-up keys.

    Args:
        catalog: a checked catalog.
        sizes: as of `made_up_lists`.

    Raises:
        CatalogError, ReleaseError: as of `listed_keys`.
    """
    fixed = [column for column in private_columns(catalog) if not column.rounds]
    return made_up_lists(catalog, sizes) | {
        column.name: fixed_list(column, _listed(catalog, column)) for column in fixed
    }


def planning_maker(catalog: Catalog, public: Engine, sizes: Mapping[str, int] = NO_SIZES) -> AxisMaker:
    """A function that builds axes for a plan, with made-up keys in the place of those that will be found.

    Args:
        catalog: the catalog.
        public: its public tables.
        sizes: as of `made_up_lists`.
    """
    return axis_maker(catalog, public, listed_tables(planning_lists(catalog, sizes)))


def _counts(
    release: Release, column: PrivateColumn, keys: KeyList
) -> Iterator[tuple[float, str, list[bool]]]:
    """By view that counts a list's keys: the largest error, the view, and which keys count twice their error."""
    for number, statistic in enumerate(release.statistics):
        places = [
            place for place, axis in enumerate(statistic.axes)
            if (release.axes[axis].table, release.axes[axis].columns[0].column) == (column.table, column.column)
        ]  # fmt: skip
        if not statistic.measure.counts_rows or not places or not READINGS[statistic.reading].by_axis:
            continue
        trees = [release.tree(axis) for axis in statistic.axes]
        nodes = release.whole(f"node_combination_{number}")["estimate"].reshape([tree.size for tree in trees])
        at = tuple(trees[i].leaves[: len(keys.keys)] if i == places[0] else 0 for i in range(len(trees)))
        counts = statistic.in_units(nodes[at])
        errors = np.concatenate(
            [_errors(release, number, places[0], range(start, min(start + KEYS_AT_ONCE, len(counts))))
             for start in range(0, len(counts), KEYS_AT_ONCE)] or [np.zeros(0)]
        )  # fmt: skip
        yield float(errors.max(initial=0.0)), statistic.view, (counts >= FEWEST * errors).tolist()


def _errors(release: Release, number: int, place: int, leaves: range) -> np.ndarray:
    """Standard errors of a view's count over single leaves of one axis."""
    masks = []
    for i, axis in enumerate(release.statistics[number].axes):
        mask = np.ones((len(leaves), release.axes[axis].leaves))
        if i == place:
            mask[:] = 0.0
            mask[np.arange(len(leaves)), np.array(leaves)] = 1.0
        masks.append(mask)
    return np.asarray(np.sqrt(release.reading(number).covariance(masks).noise))
