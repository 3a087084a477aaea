"""Publish a central release: plan, bound, measure, estimate, reconcile, write, charge.

Read top down: `publish_release` is the whole story, each step is a module of its own.

    plan        plan.py            public: axes, strategies, budgets
    rows        rows.py, contributions.py    raw rows to integer histograms
    draw        draw.py, userlevel.py, mechanisms.axis.strategy  exact integers plus exact noise
    estimate    mechanisms.axis.strategy, reconcile, rounding    post-processing
    write       release.write      the file
    charge      ledger             one commit = charge + seal

**Privacy**: docs/privacy.md sections 2 to 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.queries import files_read
from dpsql.catalog.source import Source, expand
from dpsql.errors import CatalogError
from dpsql.ledger import (
    KillPoint,
    Label,
    Lineage,
    Receipt,
    SourceTable,
    Spend,
    SpendLine,
    new_release_id,
    publish_file,
    published_before,
)
from dpsql.ledger.stated import at_delta
from dpsql.noise import Noise
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.beside import releases_beside
from dpsql.publishing.content import release_content
from dpsql.publishing.contributions import set_key
from dpsql.publishing.draw import draw_release
from dpsql.publishing.plan import plan_release
from dpsql.publishing.planned import ReleasePlan
from dpsql.publishing.rows import prepare_tables
from dpsql.release import open_release
from dpsql.release.write import write_release
from dpsql.sources import RawSide
from dpsql.sources.identity import places, table_digests
from dpsql.sources.keys import open_star
from dpsql.sql.rowlocal import is_select

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Published:
    """What `publish` did.

    Args:
        path: the release file.
        receipt: what the ledger charged; `drawn` is False where the release already existed.
        statistics: how many statistics it holds.
        cells: how many leaf combinations.
    """

    path: Path
    receipt: Receipt
    statistics: int
    cells: int

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "path": str(self.path),
            "release_id": self.receipt.release_id,
            "drawn": self.receipt.drawn,
            "charged": str(self.receipt.charged_epsilon),
            "left": str(self.receipt.left_epsilon),
            "delta": str(self.receipt.delta),
            "statistics": self.statistics,
            "cells": self.cells,
        }

    def summary(self) -> str:
        """What was done, and what an earlier crash had left behind, in lines for people."""
        if self.receipt.drawn:
            done = (
                f"published {self.path}: {self.statistics} statistics, {self.cells} cells; "
                f"charged epsilon {float(self.receipt.charged_epsilon):g}{at_delta(self.receipt.delta)}, "
                f"left {float(self.receipt.left_epsilon):g}"
            )
        else:
            done = (
                f"{self.path} is the release of this specification and label; nothing was drawn or charged, and data "
                "are not compared. To publish today's rows choose another output or another --label"
            )
        return "\n".join([*_recovered(self.receipt), done])


def _recovered(receipt: Receipt) -> list[str]:
    """What recovery found: a release that it finished, one that is charged but lost, a draw that it destroyed."""
    found, lines = receipt.recovery, []
    if found.finished is not None:
        lines.append(f"an earlier publish was cut short after its charge: {found.finished} is now in place")
    if found.lost is not None:
        lines.append(f"an earlier publish stays charged but its file {found.lost} is gone")
    if found.removed is not None:
        lines.append("an earlier publish was cut short before its charge: its draw was destroyed")
    return lines


def publish_release(
    catalog: Catalog,
    target: Path,
    *,
    noise: Noise,
    key: bytes,
    label: str | None = None,
    progress: Progress = lambda step: None,
    kill_point: KillPoint = lambda step: None,
) -> Published:
    """Make a release and charge it.

    Args:
        catalog: a loaded catalog with a source.
        target: the release file to make.
        noise: where noise comes from.
        key: 32 secret bytes that rank a unit's rows; fresh for each release, kept nowhere.
        label: idempotence label; the target's name unless given. With the same specification and label the release is
            returned as it is; no raw row is opened and data are not compared.
        progress: told each step, in words.
        kill_point: told each step, for tests that kill there.

    Returns:
        What was done.

    Raises:
        CatalogError, SourceError: the catalog or its source is wrong.
        PrivacyError and its kin: the ledger refuses.

    **Privacy**: epsilon-DP in the catalog's unit and neighbours (docs/privacy.md section 1).
    """
    if catalog.stream is not None:
        raise CatalogError(
            "stream: this catalog makes a stream", hint="append batches to it with `dpsql append`"
        )
    confirmed_source(catalog)
    name = Label(catalog.privacy.lineage, label or target.name, spec_hash(catalog))
    known = published_before(ledger_path(catalog), name, target)
    if known is not None:
        return _published_before(known)
    with_raw = open_star(catalog)
    try:
        for table, lines in with_raw.left_out.items():
            progress(f"left out {lines} lines of {table} that are no rows (exact, for the curator alone)")
        plan = plan_release(catalog, axis_maker(catalog, with_raw))
        cells = sum(int(np.prod(plan.shape(s))) for s in plan.statistics)
        progress(f"planned {len(plan.statistics)} statistics over {len(plan.axes)} axes, {cells} cells")
        release_id, spend = new_release_id(), release_spend(catalog, plan)

        def build(path: Path) -> None:
            set_key(with_raw.connection, key)
            prepare_tables(catalog, with_raw, plan)
            drawn = draw_release(catalog, with_raw, plan, noise, progress)
            progress("estimating and writing")
            content = release_content(
                drawn.plan, drawn.views, with_raw.connection, release_id, insecure=noise.insecure,
                scales=drawn.scales, left_out=drawn.left_out,
            )  # fmt: skip
            write_release(path, content)

        receipt = publish_file(
            ledger_path(catalog),
            spend,
            release_id=release_id,
            label=name.label,
            spec_hash=name.spec_hash,
            digests=lambda: source_digests(with_raw, spend.tables),
            build=build,
            target=target,
            public=releases_beside(target, name.lineage),
            kill_point=kill_point,
        )
        return Published(receipt.path, receipt, len(plan.statistics), cells)
    finally:
        with_raw.close()


def _published_before(receipt: Receipt) -> Published:
    """What was done when the label was new, read from the release alone."""
    with closing(open_release(receipt.path, insecure=True)) as release:
        cells = sum(statistic.cells for statistic in release.statistics)
        return Published(receipt.path, receipt, len(release.statistics), cells)


def confirmed_source(catalog: Catalog) -> Source:
    """Where raw rows are, once no bound waits for confirmation.

    Raises:
        CatalogError: one does, or the catalog names no source.
    """
    left = catalog.unconfirmed()
    if left:
        raise CatalogError(
            f"{left[0]}: a bound was read from data and is not confirmed ({len(left)} such places)",
            hint="replace it by a public bound and remove `confirm: true`",
        )
    if catalog.source is None and catalog.collection is not None:
        raise CatalogError(
            "people report for themselves here, nothing is published", hint="run dpsql collection-plan"
        )
    if catalog.source is None:
        raise CatalogError("source: missing", hint="say where the raw tables are")
    return catalog.whole_source()


def release_spend(catalog: Catalog, plan: ReleasePlan, unit: str | None = None) -> Spend:
    """One ledger line for each draw; replace-one is charged in full, drawn at half the epsilon or a quarter of the rho.

    Args:
        catalog, plan: the release.
        unit: whose rows are protected; the catalog's unit unless given.
    """
    privacy = catalog.privacy
    lineage = Lineage(privacy.lineage, unit or privacy.unit, privacy.neighbours, privacy.delta, privacy.cap)
    lines = tuple(SpendLine(purpose, charge, lineage.currency) for purpose, charge in plan.lines)
    return Spend(lineage, lines, source_tables(catalog))


def source_tables(catalog: Catalog) -> tuple[SourceTable, ...]:
    """The private tables of a catalog by their canonical places.

    A SELECT over private rows may join a file that is itself a public table; that place is nobody's.
    """
    source, public = catalog.whole_source(), set(catalog.public_tables)
    root, written = source.folder(catalog.file), source.expanded()
    shared = {
        place
        for name in public
        if not is_select(written[name])
        for place in places(source.kind, root, written[name])
    }
    tables = []
    for name, where in written.items():
        if name in public or name not in catalog.tables:
            continue
        named = files_read(catalog, name) if is_select(where) else (where,)
        own = tuple(place for file in named for place in places(source.kind, root, expand(file)))
        own = own or places(source.kind, root, where)
        kept = tuple(place for place in own if place not in shared) if is_select(where) else own
        tables.append(SourceTable(name, kept or own))
    return tuple(tables)


def source_digests(raw: RawSide, tables: Iterable[SourceTable]) -> dict[str, tuple[str, ...]]:
    """Digests of each private table; the ledger keeps only keyed hashes of them."""
    return {
        table.name: table_digests(raw, table.name, table.places)
        for table in tables
        if table.name in raw.columns
    }
