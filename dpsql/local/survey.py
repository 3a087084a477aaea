"""From a catalog with `collection:` to a design: its views' axes, pairs and measures, seen from one table.

Of a column that only devices know, beside rows of a curator, the design is one view a level of its channel, one row a
person, no measures: an ordinary collection plan. Reports with pseudonyms are stored as (unit, view, item), one row a
person, the first one counts. The file stays with the curator: it holds one scrambled item a pseudonym, and is never
tallied here.

**Privacy**: a design is a function of the catalog and of public tables. A report is epsilon-LDP towards the curator,
who knows whose it is; whether somebody reported is seen by her too. Storing spends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from dpsql.axis.build import build_axis, needed_tables
from dpsql.axis.model import (
    Axis,
    CategoryRule,
    KeyListRule,
    OrderedRule,
    PublicTable,
    as_declared,
    check_cells,
)
from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.catalog import StarTable
from dpsql.catalog.collection import Collection, counted_share, has_bit, report_epsilon, weighting_of
from dpsql.catalog.graph import ResolvedAxis, ResolvedMeasure, joint_view
from dpsql.catalog.private_columns import ReportedColumn, reported_columns
from dpsql.client.device import Report, decode, from_json
from dpsql.client.oracles import read_varint
from dpsql.client.plan import Plan, View, read_plan
from dpsql.engines.registry import open_star
from dpsql.errors import CatalogError, DataError, InternalError, OperationalError, SourceError
from dpsql.local.files import check_folder, plan_file, write_plan_file
from dpsql.local.mechanisms.channel import Channel, Level, channel_of
from dpsql.local.plan import ONLY as ONE_ROUND
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedGrid, PlannedMeasure, checked
from dpsql.matrices.max_entropy import MOST_LEAVES
from dpsql.release.reports import UNDECLARED_ROWS
from dpsql.row_expressions import identifier, literal

AxisMaker = Callable[[ResolvedAxis], Axis]


@dataclass(frozen=True)
class Survey:
    """Questions of a catalog to people: axes, measures, and the axes of each view.

    Args:
        catalog: the catalog.
        of: the table whose rows people report.
        axes: the axes, in the plan's order.
        resolved: what each axis means in the catalog.
        measures: measures other than counts, in the plan's order.
        views: per view, its axes' positions and its measures' positions.
    """

    catalog: Catalog
    of: str
    axes: tuple[Axis, ...]
    resolved: tuple[ResolvedAxis, ...]
    measures: tuple[ResolvedMeasure, ...]
    views: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]

    @property
    def collection(self) -> Collection:
        """The catalog's `collection:`, which `survey_of` has seen."""
        assert self.catalog.collection is not None
        return self.catalog.collection

    @property
    def tables(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Positions of the axes and of the measures of every table that a release holds."""
        if not self.collection.by_pairs:
            return tuple(self.views.values())
        return tuple((pair, ()) for axes, _ in self.views.values() for pair in combinations(axes, 2))


def survey_of(catalog: Catalog, make: AxisMaker) -> Survey:
    """Read a catalog's views as questions to people.

    Args:
        catalog: a catalog with `collection:` and views of one table.
        make: builds an axis from public facts.

    Returns:
        The survey.

    Raises:
        CatalogError: no `collection:`, or views of several tables.
    """
    tables = {view.of for view in catalog.views.values()}
    if catalog.collection is None or len(tables) != 1:
        raise CatalogError(
            "a collection needs `collection:` and views of one table",
            hint="write collection: {participation: unknown}",
        )
    resolved: list[ResolvedAxis] = []
    measures: dict[str, ResolvedMeasure] = {}
    views: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    for name, view in sorted(catalog.star.views.items()):  # a catalog inside a plan has lost its order
        view_axes = view.meant
        resolved += [axis for axis in view_axes if axis not in resolved]
        view_measures = [m for m in view.measures if not m.name.is_count]
        measures |= {m.name: m for m in view_measures if m.name not in measures}
        places = tuple(sorted(resolved.index(axis) for axis in view_axes))
        views[name] = (places, tuple(list(measures).index(m.name) for m in view_measures))
    axes = tuple(make(axis) for axis in resolved)
    for name, (places, _) in views.items():
        made_axes = [axes[i] for i in places]
        if catalog.collection.by_pairs:
            _check_pairs(name, made_axes, catalog.views[name].cells)
        else:
            # at planning and at collecting alike
            check_cells(name, catalog.views[name].cells, made_axes, SMALLER)
    return Survey(catalog, tables.pop(), axes, tuple(resolved), tuple(measures.values()), views)


def _check_pairs(view: str, axes: Sequence[Axis], cap: int) -> None:
    """Refuse a view with an axis that redrawing its pairs would take too long for, or whose pairs are over its cap."""
    longest = max(axes, key=lambda axis: axis.leaves)
    if longest.leaves > MOST_LEAVES:
        raise CatalogError(
            f"views.{view}: {longest.name} has {longest.leaves} leaves, and `estimate: lle` takes up to {MOST_LEAVES}",
            hint="cut the axis wider (`cuts`)",
        )
    cells = sum(first.leaves * second.leaves for first, second in combinations(axes, 2))
    if cells > cap:
        raise CatalogError(
            f"views.{view}: its pairs have {cells} cells, over the cap of {cap}",
            hint="cut the axes wider (`cuts`), or raise `cells`",
        )


SMALLER = (
    "write several views of fewer axes, cut the axes wider (`cuts`), or write `collection: {estimate: lle}` for counts "
    "of one view, which are then biased"
)


def design_of(survey: Survey, people: int, label: str = "") -> CollectionDesign:
    """The collection's design.

    Args:
        survey: from `survey_of`.
        people: how many are expected to report.
        label: tells repeated collections of one catalog apart; a device answers each of them once.
    """
    catalog, collection = survey.catalog, survey.collection
    table = catalog.star.tables[survey.of]
    slots = (
        {"row_weighting", "row_bit_cap"} if collection.tau == 1 else {"tau", "row_weighting", "row_bit_cap"}
    )
    if table.one_row and collection.settled & slots:
        raise CatalogError(
            f"everybody has one row of `{survey.of}`",
            hint="write tau: 1 in `collection:`, and neither row_weighting nor row_bit_cap",
        )
    tau, source, guess, cap, share = _row_design(collection, table)
    return CollectionDesign(
        collection=":".join(name for name in (catalog.name, catalog.privacy.lineage, label) if name),
        epsilon=report_epsilon(catalog.privacy.epsilon, collection),
        people=people,
        axes=tuple(_planned(axis) for axis in survey.axes),
        measures=tuple(PlannedMeasure(str(m.name), *m.bounds, m.scale) for m in survey.measures),
        together=tuple(axes for axes, _ in survey.views.values() if len(axes) > 1),
        joint=_joint_grids(survey, collection),
        asked=_asked(survey, collection, share),
        branching=collection.branching,
        kind=collection.kind,
        tau=tau,
        tau_from=source,
        row_guess=guess,
        rows_floor=1 if table.one_row else 0,
        rows_cap=cap,
        row_share=share,
        row_share_free=bool(share) and not collection.fixed_share,
        row_weighting=weighting_of(collection, table.one_row),
        shuffled=collection.shuffled,
        catalog=json.loads(catalog.to_json()),
    )


def _row_design(
    collection: Collection, table: StarTable
) -> tuple[int, str, tuple[float, ...], int, Fraction]:
    """Slots or the bit's cap. Without a guess, people of r rows are taken to be r^-2 as many as those of one.

    Returns:
        Declared tau, its origin, the public guess, the largest number of rows, and who reports how many there are.
    """
    share, source = counted_share(collection, table.one_row), collection.slots.name
    row_guess = collection.row_guess
    guess = tuple(float(row_guess.get(r, 0)) for r in range(max(row_guess, default=-1) + 1))
    bit = has_bit(collection, table.one_row)
    if bit and not share:
        raise CatalogError(
            "a person may have several rows, and nobody is asked how many",
            hint="raise row_share, such as 1/10",
        )
    settled = collection.row_bit_cap if bit else collection.tau
    declared = settled if isinstance(settled, int) else 1
    cap = max(table.bounding.max_ids or UNDECLARED_ROWS, declared, 2, len(guess) - 1)
    if bit and collection.cap_from.guessed:
        return 1, "theory", guess or first_guess(cap), cap, share
    return declared, source, guess, cap, share


def first_guess(cap: int) -> tuple[float, ...]:
    """Shares of people with 0, 1, .. cap rows where nobody guesses: in proportion to r^-2.

    In four worlds (benchmarks.local.rows) of 20,000 and 100,000 people shares of ranges erred less by it than by 1/r in
    all eight, by 1.1 to 11 times, and counts in six; two of 20,000 had 1.2 and 1.5 times the error, of their total.
    """
    total = sum(1 / r**2 for r in range(1, cap + 1))
    return (0.0, *(1 / (r**2 * total) for r in range(1, cap + 1)))


def _joint_grids(survey: Survey, collection: Collection) -> tuple[PlannedGrid, ...]:
    """Declared joint grids by the survey's axes; the catalog has checked that a view holds each."""
    grids = []
    for name, grid in sorted(collection.joint.items()):
        view = survey.catalog.star.views[str(joint_view(survey.catalog, grid))]
        places = {written.axis: survey.resolved.index(axis) for written, axis in view.axes}
        grids.append(PlannedGrid(name, tuple(sorted(places[axis] for axis in grid.axes)), grid.share))
    return tuple(grids)


def _asked(
    survey: Survey, collection: Collection, counted: Fraction
) -> tuple[tuple[tuple[int, ...], Fraction], ...]:
    """Every view's axes and its part of the people; views without a share split what is left."""
    if not collection.shares:
        return ()
    unshared = len(survey.views) - len(collection.shares)
    remaining = 1 - collection.fixed_share - (counted if collection.row_share is None else 0)
    if remaining < 0 or (remaining == 0 and unshared):
        raise CatalogError(
            "the shares of `collection:` leave nobody for the other questions", hint="lower them"
        )
    view_share = remaining / max(unshared, 1)
    return tuple((axes, collection.shares.get(name, view_share)) for name, (axes, _) in survey.views.items())


def _planned(axis: Axis) -> PlannedAxis:
    special = {"null_leaf": axis.null_leaf, "missing_leaf": axis.missing_leaf, "other_leaf": axis.other_leaf}
    lookup: dict[str, Any] = {key: leaf for key, leaf in special.items() if leaf is not None}
    rule = axis.rule
    inner = axis.leaves - len(axis.special)
    if isinstance(rule, CategoryRule):
        return PlannedAxis(axis.name, axis.leaves, 0, {**lookup, "values": list(rule.values)})
    if isinstance(rule, OrderedRule):
        starts = [int(s) for s in rule.starts]
        bins = {"starts": starts, "upper": int(rule.upper), "scale": rule.scale, "type": rule.type}
        if rule.type == "timestamp":
            bins["grain"] = rule.grain
        return PlannedAxis(axis.name, axis.leaves, inner, {**lookup, **bins})
    if isinstance(rule, KeyListRule):
        raise InternalError(f"axis {axis.name}: devices know listed values alone")
    leaves = {str(key): int(leaf) for key, leaf in zip(rule.keys, rule.leaf, strict=True)}
    return PlannedAxis(axis.name, axis.leaves, 0, {**lookup, "keys": leaves, "key": rule.key})


def planned_axis(catalog: Catalog, column: ReportedColumn) -> PlannedAxis:
    """The axis of one column alone, as a device looks its values up."""
    meant = ResolvedAxis(
        str(column), column.table, (), column.table, column.column, column.spec, None, (), missing=False
    )
    return _planned(build_axis(catalog, meant, {}))


def public_axis_maker(catalog: Catalog) -> AxisMaker:
    """A function that builds axes, reading public tables from the catalog's source where an axis needs one."""
    public_tables: dict[str, PublicTable] = {}

    def make(resolved: ResolvedAxis) -> Axis:
        for table in needed_tables(catalog, resolved):
            if table not in public_tables:
                public_tables[table] = as_declared(
                    _read_public(catalog, table), catalog.tables[table].columns
                )
        return build_axis(catalog, resolved, public_tables)

    return make


def _read_public(catalog: Catalog, table: str) -> PublicTable:
    source = catalog.raw_source()
    if table not in source.tables:
        raise SourceError(f"source.tables has no `{table}`", hint="name its file there")
    raw = open_star(catalog, [table])
    try:
        rows = raw.connection.execute(f'SELECT * FROM raw."{table}"').fetchall()
        types = raw.columns[table]
        return PublicTable(table, types, {name: [r[i] for r in rows] for i, name in enumerate(types)})
    finally:
        raw.close()


FOR = "reported"
"""The plan's key that names the column."""


def column_of(catalog: Catalog, name: str) -> ReportedColumn:
    """The reported column of that name.

    Raises:
        CatalogError: there is none.
    """
    for column in reported_columns(catalog):
        if str(column) == name:
            return column
    names = ", ".join(str(column) for column in reported_columns(catalog)) or "none"
    raise CatalogError(
        f"{name} is not a reported column ({names})", hint="write `reported: {epsilon: ..}` in its column"
    )


def plan_of(catalog: Catalog, column: ReportedColumn) -> bytes:
    """The device's plan: public facts alone."""
    promise = column.told
    channel = channel_of(*column.asked)
    design = CollectionDesign(
        collection=promise.collection,
        epsilon=promise.epsilon,
        people=1,
        axes=(planned_axis(catalog, column),),
        rows_floor=1,
        rows_cap=2,
        catalog={FOR: str(column), "catalog": json.loads(catalog.to_json())},
    )
    views = [
        View(
            "grid",
            (0,),
            (level.edges,),
            oracle=level.oracle,
            domain=level.nodes,
            extra=level.extra,
            share=level.share,
        )
        for level in channel.levels
    ]
    return checked(design, views, ONE_ROUND)


def write_reported_plan(catalog: Path, name: str, target: Path) -> Plan:
    """Write the plan of one column.

    Raises:
        CatalogError: the catalog has no such reported column.
        OperationalError: the target holds another plan.

    **Privacy**: public facts alone.
    """
    check_folder(target)
    loaded = load_catalog(catalog)
    raw = plan_of(loaded, column_of(loaded, name))
    write_plan_file(target, raw)
    return read_plan(raw)


def store_reports(plan: Path, name: str, spools: Sequence[Path], target: Path) -> tuple[int, dict[str, int]]:
    """Check reports and store those that count, for `source: {reports: ..}`.

    Args:
        plan: the plan that devices answered.
        name: the column, `table.column`.
        spools: Parquet files with `report` and `token`, or JSON lines; the token is the person's key in the curator's
            table, as text, which whoever received the report has checked.
        target: the Parquet file to write.

    Returns:
        How many people's reports count, and how many reports do not, by reason.

    Raises:
        DataError: the plan is of another column, or no report counts.
        OperationalError: a file cannot be read, or the target exists.

    **Privacy**: each person spent the plan's epsilon on her own device, towards the curator, who knows whose report it
    is. The file stays with the curator.
    """
    checked_plan = plan_file(plan)
    body = json.loads(checked_plan.raw)
    column = (body.get("catalog") or {}).get(FOR)
    if column != name:
        raise DataError(f"this plan is not about {name}", hint="name the column that it was made for")
    if target.exists():
        raise OperationalError(
            f"{target.name} exists", hint="reports are never overwritten; name another file"
        )
    starts = _channel(checked_plan).starts
    people: dict[str, tuple[int, int]] = {}
    left_out: dict[str, int] = {}
    for spool in spools:
        for token, report in _read(spool):
            channel_item = _item(checked_plan, report, starts) if report is not None else None
            reason = "no pseudonym" if not token else "repeated" if token in people else None
            reason = reason or (None if channel_item is not None else "not a report of this plan")
            if reason is not None:
                left_out[reason] = left_out.get(reason, 0) + 1
            elif channel_item is not None and report is not None:
                people[token] = (report.view, channel_item)
    if not people:
        raise DataError("no report counts", hint="check that they belong to this plan and carry pseudonyms")
    answered = ReportProvenance(name, checked_plan.hash.hex(), _channel(checked_plan).fingerprint)
    write_items(
        target, answered, [(unit, view, channel_item) for unit, (view, channel_item) in people.items()]
    )
    return len(people), left_out


class ReportProvenance(NamedTuple):
    """Provenance of stored reports: the column, the plan's hash, and the channel's fingerprint."""

    column: str
    plan: str
    channel: str


def write_items(target: Path, answered: ReportProvenance, rows: Sequence[tuple[str, int, int]]) -> None:
    """Write the file that `publish` joins: (unit, view, item), with what they answer in its metadata."""
    units, views, items = zip(*rows, strict=True)
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE kept (unit VARCHAR, view INTEGER, item BIGINT)")
        connection.execute(
            "INSERT INTO kept SELECT unnest(?::VARCHAR[]), unnest(?::INTEGER[]), unnest(?::BIGINT[])",
            [list(units), list(views), list(items)],
        )
        metadata = ", ".join(
            f"{identifier(key)}: {literal(value)}" for key, value in answered._asdict().items()
        )
        connection.execute(
            f"COPY (FROM kept ORDER BY unit) TO {literal(str(target))} (FORMAT parquet, KV_METADATA {{{metadata}}})"
        )
    target.chmod(0o600)


def read_items(path: Path) -> tuple[ReportProvenance, list[tuple[str, int, int]]]:
    """Question and rows of a file of stored reports.

    Raises:
        OperationalError: it is none.
    """
    file = literal(str(path))
    try:
        with duckdb.connect() as connection:
            pairs = connection.execute(f"SELECT key, value FROM parquet_kv_metadata({file})").fetchall()
            rows = connection.execute(f"SELECT unit, view, item FROM read_parquet({file})").fetchall()
        metadata = {bytes(key).decode(): bytes(value).decode() for key, value in pairs}
        return ReportProvenance(*(metadata[name] for name in ReportProvenance._fields)), rows
    except (duckdb.Error, KeyError, UnicodeDecodeError) as error:
        raise OperationalError(
            f"{path.name} contains no stored reports", hint="name a file of `dpsql collect --for`"
        ) from error


def _channel(plan: Plan) -> Channel:
    """The channel that a plan's views are the levels of."""
    levels = (Level(view.edges[0], view.oracle, view.extra, view.share) for view in plan.views)
    return Channel(tuple(levels), plan.own)


def _item(plan: Plan, report: Report, starts: Sequence[int]) -> int | None:
    """The item that a report says, among those of all views; None if it is none of the plan's."""
    if (
        report.plan != plan.hash
        or report.view >= len(plan.views)
        or report.oracle != plan.views[report.view].oracle
    ):
        return None
    try:
        place, size = read_varint(report.payload)
    except DataError:
        return None
    first, end = starts[report.view], starts[report.view + 1]
    return first + place if size == len(report.payload) and first + place < end else None


def _read(spool: Path) -> Iterator[tuple[str, Report | None]]:
    """(pseudonym, report) of a spool; no report where its bytes are none."""
    if spool.suffix == ".parquet":
        try:
            with closing(duckdb.connect()) as connection:
                rows = connection.execute(
                    f"SELECT CAST(token AS VARCHAR), report FROM read_parquet({literal(str(spool))})"
                ).fetchall()
        except duckdb.Error as error:
            raise OperationalError(f"{spool.name} cannot be read as reports with tokens") from error
        for token, raw in rows:
            try:
                yield str(token or ""), decode(bytes(raw))
            except (DataError, TypeError):
                yield str(token or ""), None
        return
    try:
        lines = spool.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"{spool.name} cannot be read") from error
    for line in lines:
        try:
            fields = json.loads(line)
            token = str(fields.pop("token", ""))
            yield token, from_json(json.dumps(fields))
        except (DataError, ValueError, AttributeError, TypeError, RecursionError):
            yield "", None
