"""Axes at publish time: their leaves, and the ranges that they will be asked for, from public facts alone.

An axis over a private column follows from the catalog; an axis over a public dimension takes its leaves from
that dimension's rows. Either way the result is a public fact. Public tables are read here, private ones
never.

Where the catalog lists ranges (`workload`), they are a public query log. A log seldom covers everything, so 15%
of the weight goes to evenly spread ranges and single leaves: no leaf is left without budget, and questions
that the log did not foresee stay answerable.

**Privacy**: the log is part of the catalog and published with it. It must be public, or private on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpsql.axis.build import build_axis, needed_tables
from dpsql.axis.model import Axis, OrderedRule, PublicTable, as_declared
from dpsql.catalog import Catalog
from dpsql.catalog.graph import ResolvedAxis
from dpsql.catalog.model import AxisSpec
from dpsql.engines.duck import no_sources
from dpsql.engines.registry import Engine, open_engine
from dpsql.errors import CatalogError, SourceError
from dpsql.tree import Workload

AxisMaker = Callable[[ResolvedAxis], Axis]
UNFORESEEN = 0.15

CUTS = 64


def axis_maker(
    catalog: Catalog,
    raw: Engine,
    lists: Mapping[str, PublicTable] | None = None,
    read: dict[str, PublicTable] | None = None,
) -> AxisMaker:
    """A function that builds axes, reading each public table once.

    Args:
        catalog: the catalog.
        raw: the raw side; only tables that the catalog declares public are read.
        lists: the keys that nobody listed, of each column with private keys: public facts of a release or a plan.
        read: public tables that were read before; gains those that are read.
    """
    tables, found = {} if read is None else read, lists or {}

    def make(resolved: ResolvedAxis) -> Axis:
        for table in needed_tables(catalog, resolved):
            if table not in found and table not in tables:
                tables[table] = as_declared(_read_public(raw, table), catalog.tables[table].columns)
        return build_axis(catalog, resolved, {**tables, **found})

    return make


def _read_public(raw: Engine, table: str) -> PublicTable:
    types = raw.columns.get(table)
    if types is None:
        raise SourceError(f"source.tables has no `{table}`", hint="name its file there")
    rows = raw.public_rows(table)
    columns: Mapping[str, Sequence[object]] = {name: [row[i] for row in rows] for i, name in enumerate(types)}
    return PublicTable(table, types, columns)


def open_public(catalog: Catalog) -> Engine:
    """Open the public tables of a source; private ones stay closed.

    Raises:
        CatalogError, SourceError: a public table cannot be read.
    """
    if catalog.source is None and not any(table.is_public for table in catalog.tables.values()):
        return no_sources()
    source = catalog.raw_source()
    public = [name for name, table in catalog.tables.items() if table.is_public and name in source.tables]
    if not public:
        return no_sources()
    return open_engine(catalog, public)


def declared_workload(spec: AxisSpec, resolved: ResolvedAxis, axis: Axis) -> Workload | None:
    """The declared ranges of an axis as ranges of leaves.

    Args:
        spec: the axis as the catalog writes it.
        resolved, axis: what it means and its leaves.

    Returns:
        Ranges with weights that add up to 1, or None where the catalog lists none.

    Raises:
        CatalogError: the axis is not ordered, or a range holds none of its values.
    """
    if not spec.workload:
        return None
    column = resolved.spec
    if column is None or not isinstance(axis.rule, OrderedRule):
        raise CatalogError(f"axis {axis.name}: `workload` needs an ordered column", hint="remove `workload`")
    starts = axis.rule.starts
    lo, hi, weight = [], [], []
    for low, high, times in spec.workload:
        first = max(int(np.searchsorted(starts, column.units(low), side="right")) - 1, 0)
        last = int(np.searchsorted(starts, column.units(high, upper=True), side="right"))
        if last <= first:
            raise CatalogError(
                f"axis {axis.name}: workload range [{low}, {high}] contains no value", hint="swap its ends"
            )
        lo.append(first)
        hi.append(last)
        weight.append(float(times))
    return with_unforeseen(Workload(np.array(lo), np.array(hi), np.array(weight)), axis.leaves)


def with_unforeseen(log: Workload, n: int) -> Workload:
    """A log joined with evenly spread ranges and single leaves, as it is optimised for.

    Args:
        log: ranges of leaves.
        n: leaves of the axis.

    Returns:
        The same ranges and others, with weights that add up to 1.
    """
    spread = _spread(n)
    return Workload(
        np.append(log.lo, spread.lo).astype(np.int64),
        np.append(log.hi, spread.hi).astype(np.int64),
        np.append((1 - UNFORESEEN) * log.weight / np.sum(log.weight), UNFORESEEN * spread.weight),
    )


def _spread(n: int) -> Workload:
    """Ranges between evenly spaced cuts and all single leaves, half the weight each."""
    cuts = np.unique(np.linspace(0, n, min(n, CUTS) + 1).astype(np.int64))
    i, j = np.triu_indices(len(cuts), 1)
    single = np.arange(n)
    weight = np.append(np.full(len(i), 0.5 / len(i)), np.full(n, 0.5 / n))
    return Workload(np.append(cuts[i], single), np.append(cuts[j], single + 1), weight)
