"""Keys that are listed before a release is made: `always`, and those of an earlier release of the lineage (`known`).

A refresh that names last month's release has its keys as leaves again, so series do not break, and what people's keys
weigh goes to what is new. A key whose count lay below twice its error there is left out, and may be found again: a
function of released numbers.

**Privacy**: `always` is a part of the catalog; an earlier release is public, and the ledger has charged it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np

from dpsql.catalog import Catalog, ledger_path
from dpsql.catalog.private_columns import PrivateColumn, private_columns
from dpsql.central.axes import AxisMaker, axis_maker
from dpsql.central.selection import (
    NO_SIZES,
    KeyList,
    ListedKeys,
    always_keys,
    fixed_list,
    listed_tables,
    made_up_lists,
    stored_lists,
)
from dpsql.engines.engine import Engine
from dpsql.errors import CatalogError
from dpsql.ledger import ledger_entries
from dpsql.ledger.files import file_hash
from dpsql.matrices.reading import READINGS
from dpsql.release import Release, open_release
from dpsql.release.request import requested

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
        if statistic.measure != "count" or not places or not READINGS[statistic.reading].by_axis:
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
