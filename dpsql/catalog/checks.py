"""Checks across tables and views that no single part of the catalog can make.

Above all, whose rows a release reads: each private row moves its own unit's counted rows and nobody else's.

- **One way to the unit.** A sale may name its buyer and its seller, both customers. If the unit is the buyer, an axis
  over the seller's age would place the buyer's sale by somebody else's row: removing that other customer would move
  sales of many people, and no bound on a person's own rows would hold.
- **One owner.** Where one view finds the people of an order as its buyers and another as its sellers, an order row
  belongs to two units. One of them may have many orders and take away the sales of all who sold to her.
- **A row that is a unit is read for itself.** Under `unit: row` each row of a counted table is a unit. A customer row
  that is counted and also joined by the views of sales would move all sales of that customer at once.

On the way from a counted row to its unit all rows of a key are joined, since they belong to the units they lead to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from dpsql.catalog.base import COUNT, PEOPLE, Problem, at_path, nearest, refuse
from dpsql.catalog.collection import (
    BESIDE_LLE,
    BESIDE_SERVICES,
    FEWEST_ENTROPY_AXES,
    MOST_ENTROPY_AXES,
    MOST_EPSILON,
    MOST_SERVICES,
    MOST_TAU,
    Collection,
    has_bit,
    report_epsilon,
)
from dpsql.catalog.columns import bin_starts
from dpsql.catalog.derived import check_derived
from dpsql.catalog.graph import (
    KeyPath,
    joint_view,
    max_ids,
    of_other_units,
    own_path,
    reachable,
    unit_path,
    view_axes,
    view_measures,
)
from dpsql.catalog.model import CatalogFields, View
from dpsql.catalog.private_columns import check_private_keys, check_reported
from dpsql.catalog.source import check_queries
from dpsql.catalog.summaries import check_people, check_summaries, check_summary_uses, summaries_of
from dpsql.catalog.tables import Table
from dpsql.errors import CatalogError, SourceError, visible

# Dots separate the parts of a path; quotes, brackets and control characters have no place in a name.
_NAME = re.compile(r"[^\x00-\x1f\"'.`()\[\]{},;]{1,200}")


def check_catalog(catalog: CatalogFields) -> None:
    """Refuse a catalog whose parts do not fit each other.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    _distinct(catalog.tables, "tables")
    for name, table in catalog.tables.items():
        _check_table(catalog, name, table)
    for name in catalog.tables:
        with at_path("tables", name, "foreign_keys"):
            reachable(catalog, name)
    _check_unit(catalog)
    check_people(catalog)
    check_summaries(catalog)
    _distinct(catalog.views, "views")
    for name, view in catalog.views.items():
        _check_view(catalog, name, view)
    check_summary_uses(catalog)
    check_private_keys(catalog)
    check_reported(catalog)
    check_owners(catalog)
    declared = [view.share for view in catalog.views.values() if view.share is not None]
    total = sum(declared, Fraction(0))
    if total > 1:
        raise Problem(("views",), f"the shares of the views add up to {total}; keep them at 1 or less")
    if total == 1 and len(declared) < len(catalog.views):
        raise Problem(
            ("views",), "the given shares leave nothing for the other views; lower them or give each one"
        )
    _check_collection(catalog)
    _check_source(catalog)
    if catalog.source is not None:
        check_queries(catalog.source, catalog.tables)
    check_derived(catalog.tables)
    _check_stream(catalog)


def may_be_named(name: str) -> bool:
    """True if a catalog may hold such a name: SQL could not tell `alk.phos` from a table and its column."""
    return _NAME.fullmatch(name) is not None


def plain_name(name: str) -> str:
    """A name that a catalog may hold: what else stands in it is an underscore.

    >>> plain_name("alk.phos"), plain_name("day [utc]")
    ('alk_phos', 'day _utc_')
    """
    return re.sub(r"[\x00-\x1f\"'.`()\[\]{},;]", "_", name)[:200]


def renamed(table: str, names: Iterable[str]) -> dict[str, str]:
    """Columns of a source that a catalog reads by a plain name, since it may not hold theirs.

    Args:
        table: for the error.
        names: all of its columns.

    Raises:
        SourceError: two of them would be one; a question could not tell which it means.
    """
    names = list(names)
    words = [plain_name(name).lower() for name in names]
    plain = {name: plain_name(name) for name in names if not may_be_named(name)}
    for name, word in plain.items():
        if words.count(word.lower()) > 1:
            raise SourceError(
                f"{table}: `{visible(name)}` and another column would both be called `{visible(word)}`",
                hint="a name must not contain dots, quotes or brackets; rename one of them",
            )
    return plain


def _distinct(names: Iterable[str], *path: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not may_be_named(name):
            raise Problem(
                (*path, name), "a name must not contain quotes, dots, brackets, commas or control characters"
            )
        if name.lower() in seen:
            raise Problem(
                (*path, name), f"`{seen[name.lower()]}` differs only in case; SQL cannot tell them apart"
            )
        seen[name.lower()] = name


def _check_table(catalog: CatalogFields, name: str, table: Table) -> None:
    _distinct(table.written, "tables", name, "columns")
    _distinct((*table.measures, *table.derive), "tables", name, "measures")
    _distinct(table.summaries, "tables", name, "summaries")
    for column, foreign_key in table.foreign_keys.items():
        path = ("tables", name, "foreign_keys", column)
        target = catalog.tables.get(foreign_key.references)
        if target is None:
            hint = nearest(foreign_key.references, tuple(catalog.tables))
            raise Problem(path, f"no table `{foreign_key.references}`; {hint}")
        if target.key is None:
            raise Problem(path, f"`{foreign_key.references}` has no key; write `key:` in its table")
    for column, spec in table.columns.items():
        with at_path("tables", name, "summaries" if column in table.summaries else "columns", column):
            if spec.from_ is not None:
                _check_domain_table(
                    catalog, column, spec.from_, () if spec.axis is None else spec.axis.levels
                )
            if spec.cuts is not None:
                bin_starts(spec, spec.cuts)


def _check_domain_table(catalog: CatalogFields, column: str, domain: str, levels: tuple[str, ...]) -> None:
    names = tuple(n for n, t in catalog.tables.items() if t.role.listed)
    if domain not in names:
        raise CatalogError(f"`from: {domain}` names no table of role domain", hint=nearest(domain, names))
    if levels and levels[-1] != column:
        raise CatalogError(
            "`axis.levels` goes from coarse to fine", hint=f"write `{column}` as its last entry"
        )


def _check_unit(catalog: CatalogFields) -> None:
    unit, key = catalog.privacy.unit
    if unit is None:
        return
    path = ("privacy", "unit")
    if unit not in catalog.tables:
        raise Problem(path, f"no table `{unit}`; {nearest(unit, tuple(catalog.tables))}")
    table = catalog.tables[unit]
    if table.key != key:
        key_hint = f"write `{unit}.{table.key}` or " if table.key else ""
        raise Problem(
            path,
            f"`{key}` is not the key of `{unit}`; {key_hint}set `key: {key}` under `{unit}`; where it repeats there, "
            f"declare `people: {{people_of: {unit}, key: {key}, columns: []}}` and write `people.{key}`",
        )
    if table.is_public:
        raise Problem(path, f"`{unit}` is public; the people's table must be private")


def _check_view(catalog: CatalogFields, name: str, view: View) -> None:
    if view.of not in catalog.tables:
        raise Problem(
            ("views", name, "of"), f"no table `{view.of}`; {nearest(view.of, tuple(catalog.tables))}"
        )
    if catalog.tables[view.of].is_public:
        raise Problem(("views", name, "of"), f"`{view.of}` is public; count a private table")
    with at_path("views", name, "of"):
        unit_path(catalog, view.of)
        max_ids(catalog, view.of)
    with at_path("views", name, "measures"):
        measures = view_measures(catalog, view)
        # Sums are published about the middle of their bounds, so they are read together with a count.
        if all(not measure.name.counts_rows for measure in measures):
            raise CatalogError(
                "sums and people need `count` in the same view", hint="add `count` to the measures"
            )
        _check_unit_counts(catalog, view)
    with at_path("views", name, "axes"):
        axes = view_axes(catalog, view)
        if len({axis.name for axis in axes}) != len(axes):
            raise CatalogError("an axis is listed twice", hint="list each axis once")
        for axis in axes:
            if axis.spec is not None and axis.spec.ordered:
                bin_starts(axis.spec, axis.cuts or axis.spec.cuts)


def _check_unit_counts(catalog: CatalogFields, view: View) -> None:
    """Refuse to count different units where each row is one, or where rows are not held together."""
    if PEOPLE not in view.measures:
        return
    if catalog.privacy.unit.table in (None, view.of):
        reason = f"each row of `{view.of}` is a unit, so `people` equals `count`"
        raise CatalogError(reason, hint="remove `people`")
    if catalog.stream is not None:
        raise CatalogError(
            "a stream does not count `people`: a person who returns in a later batch would count twice",
            hint="remove `people`, or publish all rows at once in a catalog without `stream`",
        )
    if catalog.collection is not None and catalog.source is None:
        reason = "people who report for themselves are counted by the collection"
        raise CatalogError(reason, hint="remove `people`")


def _check_source(catalog: CatalogFields) -> None:
    if catalog.source is None:
        return
    for name, table in catalog.tables.items():
        # people keep these rows themselves
        on_devices = catalog.collection is not None and not table.is_public
        if name not in catalog.source.tables and not on_devices:
            raise Problem(("source", "tables"), f"`{name}` has no file; write `{name}: <file>` or a SELECT")


def _check_stream(catalog: CatalogFields) -> None:
    if catalog.stream is None:
        return
    table, _, column = catalog.stream.column.rpartition(".")
    spec = catalog.tables[table].columns.get(column) if table in catalog.tables else None
    if catalog.privacy.releases is not None:
        raise Problem(
            ("privacy", "releases"), "a stream is charged once, for all of its batches; write `epsilon`"
        )
    for name, table_spec in catalog.tables.items():
        rules = {
            "bounding": (table_spec.bounding.weighs, "streams bound rows by `truncate` alone; remove the key"),
            "max_ids": (
                table_spec.chooses_rows, "a stream cannot choose it, since each batch would publish another bound; "
                "write `max_ids: 10`, or the rows per unit that count in one batch",
            ),
            "clipped_share": (
                bool(table_spec.clipped_share), "streams do not measure rows beyond max_ids; remove it or write 0",
            ),
            "excess_share": (
                bool(table_spec.excess_share), "streams do not measure values beyond bounds; remove it or write 0",
            ),
        }  # fmt: skip
        for key, (wrong, reason) in rules.items():
            refuse({reason: wrong}, "tables", name, key)
    if catalog.source is not None and catalog.source.kind.is_server:
        raise Problem(
            ("source", "kind"),
            f"a stream's batches are files or in DuckDB, not in {catalog.source.kind.name}",
        )
    if spec is None or spec.type not in ("date", "timestamp"):
        raise Problem(("stream", "column"), "write table.column of a declared date or timestamp column")
    if column in catalog.tables[table].derive:
        raise Problem(
            ("stream", "column"),
            f"`{column}` is derived, and batches are distinguished by a column of the source; write it into the files",
        )


def check_owners(catalog: CatalogFields) -> None:
    """Refuse views that join private rows of other units than the counted row's.

    Args:
        catalog: a catalog whose views and unit are valid one by one.

    Raises:
        Problem: at the view, or at the table whose way to the unit does not fit.

    **Privacy**: with it, a counted row's leaves are a function of rows that its own unit owns and of rows that no unit
    owns, and each private row has one owner, which section 2 of docs/privacy.md needs.
    """
    if catalog.collection is not None and catalog.source is None:
        return  # nobody holds the rows: each device bounds and reports its own
    if catalog.privacy.unit.table is None:
        # Refuse, under `unit: row`, a counted table that the views of another one join.
        counting = {view.of: name for name, view in reversed(catalog.views.items())}
        for name, view in catalog.views.items():
            tables = reachable(catalog, view.of)
            for table in (tables[path] for path in _joins_of(catalog, view)):
                if table in counting:
                    key = catalog.tables[table].key
                    raise Problem(
                        ("views", name),
                        f"it joins `{table}`, whose rows view `{counting[table]}` counts: under `unit: row` one row of "
                        f"`{table}` would move every row of `{view.of}` that names it; write `unit: {table}.{key}` and "
                        f"`max_ids` in tables.{view.of}, or leave out one of the two views",
                    )
        return
    for name, view in catalog.views.items():
        with at_path("views", name, "axes"):
            # Refuse joins that reach a unit's rows by another way than the counted row's own.
            of, owner_path = view.of, own_path(catalog, view.of)
            for path in _joins_of(catalog, view):
                if of_other_units(catalog, of, path):
                    table = reachable(catalog, of)[path]
                    raise CatalogError(
                        f"tables.{of}: `{'.'.join(path)}` leads to rows of `{table}` that belong to other "
                        "privacy units",
                        hint=f"use columns reached through `{'.'.join(owner_path) or of}`, or declare {table} public",
                    )
    _check_one_owner(catalog)


def _check_one_owner(catalog: CatalogFields) -> None:
    """Refuse a private table whose rows belong to one unit in one view and to another in the next."""
    ways: dict[str, tuple[KeyPath, str]] = {}
    summarised = [summary.of for summary in summaries_of(catalog).values()]
    for of in dict.fromkeys([*(view.of for view in catalog.views.values()), *summarised]):
        owner_path, tables = own_path(catalog, of), reachable(catalog, of)
        for hop in range(len(owner_path) + 1):
            table, way = tables[owner_path[:hop]], owner_path[hop:]
            earlier, earlier_of = ways.setdefault(table, (way, of))
            if earlier != way and not catalog.tables[table].is_public:
                raise Problem(
                    ("tables", of, "unit_path"),
                    f"rows of `{table}` belong to `{'.'.join(way)}` here and to `{'.'.join(earlier)}` in the views of "
                    f"`{earlier_of}`, so that one of them would have two owners; give both tables one `unit_path` from "
                    f"`{table}` on, or leave out the views of one",
                )


def _joins_of(catalog: CatalogFields, view: View) -> tuple[KeyPath, ...]:
    """Tables that the rows of a view's table are joined to."""
    tables = reachable(catalog, view.of)
    ends = {own_path(catalog, view.of)[:-1], *(axis.path for axis in view_axes(catalog, view))}
    ends |= {  # hops that drop unmatched rows are always taken
        path for path in tables if path and catalog.tables[tables[path[:-1]]].foreign_keys[path[-1]].drops
    }
    hops = {path[:hop] for path in ends for hop in range(1, len(path) + 1)}
    return tuple(sorted(hops, key=lambda path: (len(path), path)))


def _check_collection(catalog: CatalogFields) -> None:
    """Refuse a collection whose parts do not fit each other or the views.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    collection = catalog.collection
    if collection is None:
        return
    epsilon = report_epsilon(catalog.privacy.epsilon, collection)
    if not 0 < epsilon <= MOST_EPSILON:
        raise Problem(
            ("privacy" if collection.epsilon is None else "collection", "epsilon"),
            f"devices refuse epsilon {epsilon}; a report's epsilon is above 0 and at most {MOST_EPSILON}",
        )
    _check_slots(collection)
    if collection.everybody is not None and not collection.participation.sampled:
        raise Problem(
            ("collection", "everybody"),
            "only a random sample is scaled to the population; write participation: random, or leave the number out",
        )
    _check_services(catalog)
    odd = collection.settled - collection.way.keys
    if odd:
        raise Problem(
            ("collection", "kind"),
            f"`kind: {collection.kind}` {collection.way.asks}; leave out {', '.join(sorted(odd))}",
        )
    _check_entropy(catalog, collection)
    for name in collection.shares:
        if name not in catalog.views:
            hint = nearest(name, tuple(catalog.views))
            raise Problem(("collection", "shares", name), f"no such view; {hint}")
    refuse({
        "a share must be above 0": any(share <= 0 for share in collection.shares.values()),
        "the shares add up to more than 1; lower them": sum(collection.shares.values(), Fraction(0)) > 1,
    }, "collection", "shares")  # fmt: skip
    all_shared = bool(catalog.views) and set(collection.shares) == set(catalog.views)
    if collection.fixed_share > 1 or (collection.fixed_share == 1 and not all_shared):
        raise Problem(
            ("collection",),
            f"`row_share`, the shares of `joint` and `shares` add up to {collection.fixed_share} and leave nobody "
            "for the other questions; lower them",
        )
    for name, grid in collection.joint.items():
        if joint_view(catalog, grid) is None:
            raise Problem(
                ("collection", "joint", name, "axes"),
                "no view has all of these axes, so no answer could use them; write them as in one view's `axes`",
            )


def _check_entropy(catalog: CatalogFields, collection: Collection) -> None:
    """Refuse `estimate: lle` where maximum entropy over pairs would not be sound, or says nothing new."""
    if not collection.by_pairs:
        return
    at = ("collection", "estimate")
    odd = sorted(collection.settled - BESIDE_LLE)
    refuse({
        f"`estimate: lle` asks axes and pairs in one round; leave out {', '.join(odd)}": bool(odd),
        f"`estimate: lle` works with one view, and there are {len(catalog.views)}; keep one": len(catalog.views) != 1,
    }, *at)  # fmt: skip
    ((name, view),) = catalog.views.items()
    if not FEWEST_ENTROPY_AXES <= len(view.axes) <= MOST_ENTROPY_AXES:
        raise Problem(
            ("views", name, "axes"),
            f"`estimate: lle` takes three to six axes, and there are {len(view.axes)}; "
            "with one or two leave it out: one table covers them",
        )
    if set(view.measures) != {COUNT}:
        raise Problem(
            ("views", name, "measures"), "`estimate: lle` counts rows alone; write measures: [count]"
        )
    if catalog.privacy.unit.table not in (None, view.of):
        raise Problem(
            at, f"`estimate: lle` counts one row per person, and a person may own several of `{view.of}`"
        )


def _check_services(catalog: CatalogFields) -> None:
    """Refuse services that do not divide the views' axes and epsilon between them.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    collection = catalog.collection
    if collection is None or not collection.services:
        return
    at = ("collection", "services")
    misnamed = [name for name in collection.services if not re.fullmatch(r"[A-Za-z0-9_]{1,40}", name)]
    if not 2 <= len(collection.services) <= MOST_SERVICES:
        raise Problem(at, f"there are 2 to {MOST_SERVICES} services; with one, leave `services` out")
    if misnamed:
        reason = "a name is 1 to 40 letters, digits and underscores; it names a plan file"
        raise Problem((*at, misnamed[0]), reason)
    _check_service_axes(catalog, collection)
    shares = [s.share for s in collection.services.values() if s.share is not None]
    uneven = len(shares) != len(collection.services) or min(shares) <= 0 or sum(shares) != 1
    odd = sorted(collection.settled - BESIDE_SERVICES)
    refuse({
        "give every service a `share` above 0, adding up to 1, or none of them": bool(shares) and uneven,
        f"services ask one question each, in one round, alone; leave out {', '.join(odd)}": bool(odd),
    }, *at)  # fmt: skip
    if collection.cap_from.counted:
        reason = "services ask in one round; write a number of rows, such as 5"
        raise Problem(("collection", "row_bit_cap"), reason)


def _check_service_axes(catalog: CatalogFields, collection: Collection) -> None:
    """Every axis and every measure of every view stands in exactly one service, and no service tells two measures."""
    at = ("collection", "services")
    axis_uses = Counter(axis for service in collection.services.values() for axis in service.axes)
    view_axes = {axis.axis for view in catalog.views.values() for axis in view.axes}
    for name, service in collection.services.items():
        if not service.axes:
            raise Problem((*at, name, "axes"), "a service without an axis asks nothing; leave it out")
    for axis in sorted(view_axes | set(axis_uses)):
        if axis not in view_axes:
            raise Problem(at, f"no view has the axis `{axis}`; write axes as in the views")
        if axis_uses[axis] != 1:
            raise Problem(at, f"`{axis}` is in {axis_uses[axis]} services; each axis belongs to exactly one")
    uses = Counter(measure for service in collection.services.values() for measure in service.measures)
    wanted = {measure for view in catalog.views.values() for measure in view.measures} - {COUNT}
    for measure in sorted(wanted | set(uses)):
        if measure not in wanted:
            raise Problem(at, f"no view has the measure `{measure}`; write measures as in the views")
        if uses[measure] != 1:
            raise Problem(
                at,
                f"`{measure}` is in {uses[measure]} services; write measures: [{measure}] in the one that knows it",
            )
    for name, service in collection.services.items():
        if len(service.measures) > 1:
            raise Problem((*at, name, "measures"), "a report of a service contains one measure; write one")


def _check_slots(collection: Collection) -> None:
    """Row counts, tau and the bit's cap."""
    share, slots = collection.row_share, collection.slots
    if share is not None and not 0 <= share < 1:
        raise Problem(("collection", "row_share"), "a share of the people is at least 0 and below 1")
    # slots and bits do not go together
    if not has_bit(collection) and not collection.cap_from.guessed:
        raise Problem(
            ("collection", "row_bit_cap"), "slots have no bit; leave it or `tau` and `row_weighting` out"
        )
    if has_bit(collection) and "tau" in collection.settled:
        raise Problem(
            ("collection", "tau"), "with a bit there are no slots; write row_bit_cap, or row_weighting: none"
        )
    # A public guess of how many rows people have.
    guess, guessed = collection.row_guess, collection.slots.guessed
    bits = has_bit(collection) and collection.cap_from.guessed
    total = sum(guess.values())
    refuse({
        "`tau: theory` or `row_bit_cap: auto` and a public guess go together; write both, such as "
        "row_guess: {1: 0.6, 2: 0.3, 3: 0.1}": bool(guess) != guessed if not bits else guessed and not guess,
        f"the parts add up to {total}; make them add up to 1":
            bool(guess) and (total != 1 or min(guess.values()) < 0),
        f"a person has 0 to {MOST_TAU} rows, and some people have at least one":
            bool(guess) and not (min(guess) >= 0 and 1 <= max(guess) <= MOST_TAU),
    }, "collection", "row_guess")  # fmt: skip
    if slots.counted and share == 0:
        where = "tau" if "tau" in collection.settled else "row_bit_cap"
        raise Problem(
            ("collection", "row_share"),
            f"`{where}: estimate` needs some people to ask; raise it, such as 1/10",
        )
    if slots.counted and collection.shuffled:
        raise Problem(
            ("collection", "shuffled"),
            "the shuffler's promise is stated for one round; write a number, not `estimate`",
        )
