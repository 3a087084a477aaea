"""Publish a central release: plan, bound, measure, estimate, reconcile, write, charge.

Read top down: `publish_release` is the whole story, each step is a module of its own.

    plan        plan.py              public: axes, strategies, budgets
    rows        rows.py, cells.py    raw rows to integer histograms
    draw        bounding.py, contributions   exact integers plus exact noise
    estimate    content.py           post-processing
    write       release.write        the file
    charge      ledger               reserved before the draw, sealed after it

Before anything is spent, the releases beside the target are looked at: if the ledger does not know one of its
lineage, the ledger is not the one that was charged. Whoever may write into the folder must not be able to
stop a publish. So only files of the one who publishes are looked at, links and odd files are passed over, and
what cannot be read as a release, or is another lineage's, stops nothing.

**Privacy**: docs/privacy.md sections 2 to 5.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.private_columns import reported_columns
from dpsql.catalog.source import Source, expand, files_read
from dpsql.central.bounding import DrawnRelease, OpenSource, draw_release
from dpsql.central.content import release_content
from dpsql.central.hybrid import ChannelInputs, attach_reports, counted_catalog, invert_channel
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.planned import ReleasePlan
from dpsql.central.row_pairs import draw_squares
from dpsql.central.selection import listed_keys, open_selection
from dpsql.engines.registry import Engine, open_engine, places, table_digests
from dpsql.engines.schema_union import declared_values
from dpsql.errors import CatalogError, MachineFault, ReleaseError
from dpsql.faults import CHARGED, UNCHARGED, machine
from dpsql.ledger import identity
from dpsql.ledger.files import signing_seed
from dpsql.ledger.publish import Draft, Order, publish_file, published_before
from dpsql.ledger.rules import RowComparison
from dpsql.noise import Noise
from dpsql.progress import Progress, Stage, silent
from dpsql.release import open_release
from dpsql.release.signature import claimed_signer
from dpsql.row_expressions.rowlocal import is_select

PROMISE = "promise.json"

_LARGEST_PROMISE = 1 << 26


@dataclass(frozen=True)
class Published:
    """Outcome of `publish`.

    Args:
        path: the release file.
        receipt: what the ledger charged; `drawn` is False where the release already existed.
        statistics: how many statistics it holds.
        cells: how many leaf combinations.
        signer: the public key that signed it; None where it was not signed.
        left_out: table -> lines of its CSV files that are no rows; private, and empty where no raw row was opened.
    """

    path: Path
    receipt: identity.Receipt
    statistics: int
    cells: int
    signer: str | None = None
    left_out: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "path": str(self.path),
            "release_id": self.receipt.release_id,
            "drawn": self.receipt.drawn,
            "charged": str(self.receipt.charged_epsilon),
            "left": str(self.receipt.left_epsilon),
            "delta": str(self.receipt.currency.delta),
            "statistics": self.statistics,
            "cells": self.cells,
            "signer": self.signer,
            "left_out_private": dict(self.left_out),
            "forgotten": self.receipt.forgotten,
        }

    def summary(self) -> str:
        """Lines for people: what was done, and what an earlier crash had left behind."""
        if self.receipt.drawn:
            done = (
                f"published {self.path}: {self.statistics} statistics, {self.cells} cells; "
                f"spent epsilon {float(self.receipt.charged_epsilon):g}{self.receipt.currency.at_delta}, "
                f"{float(self.receipt.left_epsilon):g} left: room for {self.receipt.repeats} more like this one"
            )
        else:
            copied = "" if self.receipt.copied is None else f"a copy of {self.receipt.copied}, "
            done = (
                f"{self.path} is {copied}the release of this specification and label; nothing was drawn or charged, "
                "and data are not compared. To publish today's rows choose another output or another --label"
            )
        signed = "not signed" if self.signer is None else f"signed by {self.signer}"
        out = [
            f"left out of {table} (private): {lines:,} lines {NO_ROWS}"
            for table, lines in self.left_out.items()
        ]
        forgotten = self.receipt.forgotten
        memory = [f"no memory on this computer: {forgotten}"] if forgotten else []
        return "\n".join([*_recovered(self.receipt), done, *out, signed, *memory])


NO_ROWS = "that are not rows as `source.csv` describes the file"


def _recovered(receipt: identity.Receipt) -> list[str]:
    """Notes of crashes settled: a release now finished, one that is lost, a draw destroyed, charges taken up and
    lost."""
    recovery, lines = receipt.recovery, []
    if recovery.finished is not None:
        lines.append(
            f"an earlier publish was cut short after its charge: {recovery.finished} is now in place"
        )
    if recovery.lost is not None:
        lines.append(f"an earlier publish stays charged but its file {recovery.lost} is gone")
    if recovery.removed is not None:
        lines.append("an earlier publish was cut short: its draw was destroyed, nobody saw it")
    if receipt.taken_up:
        lines.append("an earlier publish had reserved this charge: it was taken up and is charged once")
    if receipt.ended:
        lines.append(
            f"earlier publishes under this label ended once their draws had begun to decide: epsilon "
            f"{float(receipt.currency.epsilon(receipt.ended)):g}{receipt.currency.at_delta} stays charged for them, "
            "and this one was charged anew"
        )
    return lines


def undrawn(drawn: DrawnRelease) -> None:
    """Nobody looks."""


@machine("the release was not published", UNCHARGED)
def publish_release(
    catalog: Catalog,
    target: Path,
    *,
    noise: Noise,
    key: bytes,
    label: str | None = None,
    progress: Progress = silent,
    memory: identity.LedgerMemory | None = None,
    compare: bool = False,
    other_people: str = "",
    drawn: Callable[[DrawnRelease], None] = undrawn,
) -> Published:
    """Make a release and charge it.

    Args:
        catalog: a loaded catalog with a source.
        target: the release file to make.
        noise: where noise comes from.
        key: 32 secret bytes that rank a unit's rows; fresh for each release, kept nowhere.
        label: idempotence label; the target's name unless given. With the same specification and label the release is
            returned as it is; no raw row is opened and data are not compared.
        progress: told each step.
        memory: of this computer, by which a ledger that begins anew is noticed; None for made-up rows.
        compare: whether the rows of tables that are new to the lineage are compared with those of other lineages.
        other_people: why rows that are alike are about other people, in words.
        drawn: sees the noisy integers of made-up rows before they are estimated; a proof is written from them.

    Returns:
        What was done.

    Raises:
        CatalogError, SourceError: the catalog or its source is wrong.
        PrivacyError and its kin: the ledger refuses.
        MachineFault: the machine refused; the line says what is charged.

    **Privacy**: epsilon-DP in the catalog's unit and neighbours (docs/privacy.md section 1).
    """
    if catalog.stream is not None:
        raise CatalogError(
            "stream: this catalog makes a stream", hint="append batches to it with `dpsql append`"
        )
    confirmed_source(catalog)
    name = identity.Label(catalog.privacy.lineage, label or target.name, spec_hash(catalog))
    published = published_before(ledger_path(catalog), name, target)
    if published is not None:
        return _published_before(published)
    inside = counted_catalog(catalog)
    with_raw = open_engine(inside)
    try:
        attached = attach_reports(catalog, with_raw) if reported_columns(catalog) else []
        for table, lines in with_raw.left_out.items():
            progress(
                Stage("left out of", table, {"lines that are not rows (exact, for the curator alone)": lines})
            )
        for table, words in with_raw.value_words(inside).items():
            progress(Stage("reading", f"{table}: {words} (for the curator alone)"))
        selection = open_selection(inside, with_raw, listed_keys(inside))
        plan = selection.plan
        progress(Stage("planned", counts=selection.counts))
        spend = release_spend(catalog, plan, with_raw)
        seed = signing_seed(ledger_path(catalog))
        currency = spend.lineage.currency.name
        free = tuple(identity.SpendLine(meta.line, Fraction(0), currency) for meta in attached)
        spend = replace(spend, reported=free)

        def prepare() -> None:
            prepare_tables(inside, with_raw, plan)
            selection.check(noise, key)

        def build(draft: Draft) -> None:
            if selection.finds:
                progress(Stage("finding keys of", ", ".join(keys.column.name for keys in selection.plans)))
            plan_drawn, keys = selection.chosen(noise, key, partial(draft.begin, keys=True))
            if selection.finds or plan_drawn.decides:
                draft.begin()
            scan = OpenSource(inside, with_raw, plan_drawn, noise, key)
            release_drawn = draw_release(scan, progress)
            drawn(release_drawn)
            progress(Stage("estimating and writing", target.name))
            release = release_content(release_drawn, draft.release_id, insecure=noise.insecure)
            if reported_columns(catalog):
                squares = draw_squares(scan, release)
                release = invert_channel(release, ChannelInputs(catalog, plan_drawn, squares, attached))
            promise = replace(release.privacy, values=declared_values(inside))
            replace(release, privacy=promise, keys=keys).write(draft.file, seed, draft=True)

        sketches = partial(row_sketches, with_raw, spend.tables)
        rows = None if memory is None else RowComparison(sketches, compare, other_people)
        order = Order(
            name, target, identity.new_release_id(), build,
            partial(source_digests, with_raw, catalog, spend.tables), prepare,
            tuple(releases_beside(target, name.lineage)), memory, rows,
        )  # fmt: skip
        receipt = publish_file(ledger_path(catalog), spend, order)
        drawn_plan = selection.plan
        return Published(
            receipt.path, receipt, len(drawn_plan.statistics), drawn_plan.cells, _signer(receipt.path),
            dict(with_raw.left_out),
        )  # fmt: skip
    finally:
        with_raw.close()


def _signer(path: Path) -> str | None:
    """The public key that signed a release that was just charged."""
    try:
        claimed = claimed_signer(path)
    except ReleaseError as error:
        raise MachineFault(error.reason, hint=CHARGED) from error
    return None if claimed is None else claimed.key


def _published_before(receipt: identity.Receipt) -> Published:
    """Outcome of the publish when the label was new, read from the release alone."""
    with closing(open_release(receipt.path, insecure=True)) as release:
        cells = sum(statistic.cells for statistic in release.statistics)
        claimed = release.signer
        return Published(
            receipt.path, receipt, len(release.statistics), cells, None if claimed is None else claimed.key
        )


def confirmed_source(catalog: Catalog) -> Source:
    """Source of raw rows, once no bound waits for confirmation.

    Raises:
        CatalogError: one does, or the catalog names no source.
    """
    unconfirmed = catalog.unconfirmed()
    if unconfirmed:
        raise CatalogError(
            f"{unconfirmed[0]}: a bound was read from data and is not confirmed ({len(unconfirmed)} such places)",
            hint="check it with `dpsql confirm`, or write a public bound and remove `confirm: true`",
        )
    if catalog.source is None and catalog.collection is not None:
        raise CatalogError(
            "people report for themselves here, nothing is published", hint="run dpsql collection-plan"
        )
    if catalog.source is None:
        raise CatalogError("source: missing", hint="state where the raw tables are")
    return catalog.whole_source()


def release_spend(
    catalog: Catalog, plan: ReleasePlan, raw: Engine, unit: str | None = None
) -> identity.ReleaseSpend:
    """The catalog's charge, with a line for each draw that is planned before anything is drawn.

    Replace-one is charged in full, drawn at half the epsilon, a quarter of the mu^2.

    Args:
        catalog, plan: the release.
        raw: its open raw side.
        unit: whose rows are protected; the catalog's unit unless given.
    """
    privacy = catalog.privacy
    lineage = identity.Lineage(
        privacy.lineage, unit or privacy.unit.name, privacy.neighbours, privacy.delta, privacy.cap,
        privacy.key_delta,
    )  # fmt: skip
    return identity.ReleaseSpend(lineage, plan.charge, plan.lines, source_tables(catalog, raw))


def source_tables(catalog: Catalog, raw: Engine) -> tuple[identity.SourceTable, ...]:
    """The private tables of a catalog by their canonical places: those that a server resolves, or paths.

    Data frames have none.

    A SELECT over private rows may join a file that is itself a public table; that place is nobody's.
    """
    source = catalog.whole_source()
    private = [
        name for name in source.tables if name in catalog.tables and not catalog.tables[name].is_public
    ]
    if not source.kind.has_paths:
        return tuple(identity.SourceTable(name, raw.places(name)) for name in private)
    root, written = source.folder(catalog.file), source.expanded()
    shared = {
        place
        for name in catalog.public_tables
        if not is_select(written[name])
        for place in places(source.kind, root, written[name])
    }
    tables = []
    for name in private:
        where = written[name]
        files = files_read(source, catalog.tables, name) if is_select(where) else (where,)
        resolved = tuple(place for file in files for place in places(source.kind, root, expand(file)))
        resolved = resolved or places(source.kind, root, where)
        unshared = tuple(place for place in resolved if place not in shared) if is_select(where) else resolved
        tables.append(identity.SourceTable(name, unshared or resolved))
    return tuple(tables)


def source_digests(
    raw: Engine, catalog: Catalog, tables: Iterable[identity.SourceTable]
) -> dict[str, tuple[str, ...]]:
    """Digests of each private table; the ledger keeps only keyed hashes of them."""
    return {
        table.name: table_digests(raw, catalog, table.name, table.places)
        for table in tables
        if table.name in raw.columns
    }


def row_sketches(
    raw: Engine, tables: Iterable[identity.SourceTable], key: str, number: int
) -> dict[str, list[str]]:
    """The least keyed row hashes of each private table; the ledger keeps 64 of them."""
    return {
        table.name: raw.least_row_hashes(table.name, key, number)
        for table in tables
        if table.name in raw.columns
    }


def releases_beside(target: Path, lineage: str) -> Iterator[tuple[Path, str]]:
    """Central releases and streams of a lineage in the target's folder.

    Args:
        target: the release that is to be made.
        lineage: its lineage.

    Yields:
        Their paths and the ids that they claim; local collections are charged to no ledger and left out.
    """
    target = target.absolute()
    for path in sorted(target.parent.glob("*.dpsql")):
        claim = None if path == target else _claim(path)
        if claim is not None and claim[0] == lineage:
            yield path, claim[1]


def _claim(path: Path) -> tuple[str, str] | None:
    """The lineage and id that a central release or a stream claims; None, if it is no such thing or somebody else's."""
    if _is_own(path, stat.S_ISDIR):
        promise = _promise(path / PROMISE)
        catalog, release_id, local = promise.get("catalog"), promise.get("release_id"), False
    elif _is_own(path, stat.S_ISREG):
        try:
            with closing(open_release(path, insecure=True)) as release:
                meta = release.meta
        except ReleaseError:
            return None
        catalog, release_id, local = meta.catalog, meta.release_id, meta.local is not None
    else:
        return None
    privacy = catalog.get("privacy") if isinstance(catalog, Mapping) else None
    lineage = privacy.get("lineage") if isinstance(privacy, Mapping) else None
    return None if local else (str(lineage), str(release_id))


def _promise(file: Path) -> dict[str, Any]:
    if not _is_own(file, stat.S_ISREG) or file.stat().st_size > _LARGEST_PROMISE:
        return {}
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_own(path: Path, kind: Any) -> bool:
    """True if a path is of a kind, no link, and belongs to the one who publishes."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return bool(kind(status.st_mode)) and status.st_uid == os.geteuid()
