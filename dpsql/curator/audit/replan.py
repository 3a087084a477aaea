"""The plan that a release must have come from, made again from the catalog inside the file.

Axes over private columns follow from that catalog. Axes over public tables follow from their rows: with the
curator's catalog at hand they are read again, without it their leaves are taken from the file and their contents are
not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from dpsql.axis import Axis, KeyRule, PublicTable, build_axis, needed_tables
from dpsql.catalog import Catalog, ResolvedAxis
from dpsql.central.axes import AxisMaker, axis_maker, open_public
from dpsql.central.hybrid import counted_catalog, shown_axis, supplemented
from dpsql.central.key_plans import list_limits
from dpsql.central.plan import plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.central.selection import KeyList, empty_lists, listed_tables, stored_lists
from dpsql.errors import ReleaseError
from dpsql.mechanisms.designs.measurement import LinearRows
from dpsql.release import Release
from dpsql.release.request import requested

SECONDS = 300.0
"""Until reading one table is stopped: ten times a question's time, for the largest releases."""


@dataclass(frozen=True)
class Replanned:
    """A release's plan, made again.

    Args:
        plan: the plan of what was counted.
        catalog: as it was written, reported columns with their values.
        shown: the axes that the release shows.
        borrowed: ids of axes that were taken from the file.
        lists: the keys that nobody listed, by column, as the file has them.
        limits: most keys of each list.
        linear: the rows of statistics that can be recomputed from their noisy integers, by index: no data-dependent
            mechanism, no rows per unit chosen at publish.
    """

    plan: ReleasePlan
    catalog: Catalog
    shown: tuple[Axis, ...]
    borrowed: frozenset[int]
    lists: Mapping[str, KeyList]
    limits: Mapping[str, int]
    linear: dict[int, LinearRows]


def replan(release: Release, catalog: Catalog | None) -> Replanned:
    """Plan again what a release claims to be.

    Args:
        release: an open central release.
        catalog: the curator's catalog, whose public tables may be read; None to work from the file alone.

    Raises:
        CatalogError: the catalog inside the file does not plan.
        ReleaseError: the file's axes are not those of its catalog.
    """
    written = release.catalog
    inside = counted_catalog(written)
    lent: dict[ResolvedAxis, Axis] = {}
    with requested(SECONDS):
        lists = stored_lists(release)
    empty = empty_lists(inside)
    facts = listed_tables(empty | lists)
    if catalog is None:
        limits = list_limits(inside, axes_from_file(release, inside, {}, listed_tables(empty)))
        plan = plan_release(inside, axes_from_file(release, inside, lent, facts))
    else:
        with closing(open_public(counted_catalog(catalog))) as public:
            limits = list_limits(inside, axis_maker(inside, public, listed_tables(empty)))
            plan = plan_release(inside, axis_maker(inside, public, facts))
    plan = supplemented(plan, inside)
    if len(plan.axes) != len(release.axes) or len(plan.statistics) != len(release.statistics):
        raise ReleaseError(f"{release.path} holds other axes or statistics than its catalog plans")
    borrowed = frozenset(i for i, planned in enumerate(plan.axes) if planned.resolved in lent)
    rows = {i: s.measurement.facts.linear for i, s in enumerate(plan.statistics) if s.sensitivity}
    linear = {i: linear for i, linear in rows.items() if linear is not None}
    shown = tuple(shown_axis(written, planned) for planned in plan.axes)
    return Replanned(plan, written, shown, borrowed, lists, limits, linear)


def axes_from_file(
    release: Release,
    catalog: Catalog,
    lent: dict[ResolvedAxis, Axis],
    lists: Mapping[str, PublicTable],
) -> AxisMaker:
    """Build axes from the catalog and from lists of keys, and take those over public tables from the file."""

    def make(resolved: ResolvedAxis) -> Axis:
        if lists.keys() >= set(needed_tables(catalog, resolved)):
            return build_axis(catalog, resolved, lists)
        lent[resolved] = _borrow(release, resolved)
        return lent[resolved]

    return make


def _borrow(release: Release, resolved: ResolvedAxis) -> Axis:
    """An axis of the right size and name, without columns."""
    for meta in release.axes:
        if (meta.name, meta.path, meta.of) == (resolved.name, resolved.path, resolved.of):
            return Axis(
                meta.name, resolved, meta.leaves, meta.null_leaf, meta.missing_leaf, meta.other_leaf, (), (),
                KeyRule("", (), np.zeros(0, np.int64)), meta.atomic, np.zeros(0, np.int64), {},
            )  # fmt: skip
    raise ReleaseError(f"{release.path} has no axis {resolved.name}, which its catalog plans")
