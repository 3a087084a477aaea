"""Reports about one column that only devices know: the plan that they answer, and the file that a curator joins.

    plan      one view a level of the channel, one row a person, no measures: an ordinary collection plan
    store     reports with pseudonyms -> (unit, view, item), one row a person, the first one counts

The file stays with the curator: it holds one scrambled item a pseudonym, and is never tallied here.

**Privacy**: a report is epsilon-LDP towards the curator, who knows whose it is. Whether somebody reported is seen by
her too. Storing spends nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.private_columns import ReportedColumn, reported_columns
from dpsql.client.device import Report, decode, from_json
from dpsql.client.oracles import read_varint
from dpsql.client.plan import Plan, View, read_plan
from dpsql.errors import CatalogError, DataError, OperationalError
from dpsql.local.files import check_folder, plan_file, write_plan_file
from dpsql.local.mechanisms.channel import Channel, Level, channel_of
from dpsql.local.plan import ONLY as ONE_ROUND
from dpsql.local.plan import CollectionDesign, checked
from dpsql.local.survey import planned_axis
from dpsql.row_expressions import identifier, literal

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
