"""What a curator does around publishing: draft a catalog, plan before spending, look at budgets, audit a release.

init      raw tables -> a first catalog; bounds that were read from data are marked
plan      catalog -> predicted errors, cells, bytes; nothing private is read, nothing is spent
budget    catalog -> what its ledger holds
audit     release -> whether it holds what its catalog says, and nothing else
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.opened import ReleasePath

if TYPE_CHECKING:
    from dpsql.forecast import PlanReport
    from dpsql.inspection import AuditReport
    from dpsql.ledger import BudgetReport
    from dpsql.publishing.userlevel_expect import Guess


def plan(
    catalog: ReleasePath, workload: Sequence[str] = (), *, compare: bool = False, guess: Guess | None = None
) -> PlanReport:
    """What a catalog's release will cost and how noisy it will be, before anything is spent.

    Args:
        catalog: the YAML file.
        workload: statements whose standard errors are wanted.
        compare: also plan the views with flat, tree, tents and Gaussian mechanisms.
        guess: what is publicly known about tables with `max_ids: auto`, for their relative errors.

    Returns:
        Views with strategies, cells, bytes and seconds; the workload's errors; the break-even number of queries.

    Raises:
        CatalogError, SourceError: the catalog or a public table is wrong.

    **Privacy**: spends nothing and opens no private table.
    """
    from dpsql.catalog import load_catalog
    from dpsql.forecast import plan_catalog

    return plan_catalog(load_catalog(Path(catalog)), workload, compare=compare, guess=guess)


def budget(catalog: ReleasePath) -> BudgetReport:
    """What the ledger of a catalog holds: caps, spends, releases. For the curator.

    Args:
        catalog: the YAML file.
    """
    from dpsql.catalog import load_catalog
    from dpsql.catalog.graph import ledger_path
    from dpsql.ledger import budget_report

    return budget_report(ledger_path(load_catalog(Path(catalog))))


def audit(release: ReleasePath, *, catalog: ReleasePath | None = None, samples: int = 20_000) -> AuditReport:
    """Check offline that a release holds what its catalog says, and nothing else.

    Args:
        release: the release file.
        catalog: the curator's YAML file, to check the ledger and public tables too.
        samples: runs of the black-box auditor for each statistic; 0 leaves it out.

    Returns:
        One line for each claim, and whether all hold.

    Raises:
        ReleaseError, CatalogError: a file cannot be opened.

    **Privacy**: reads no private table and spends nothing.
    """
    from dpsql.catalog import load_catalog
    from dpsql.inspection import audit_release
    from dpsql.noise import ExactNoise, os_entropy

    known = None if catalog is None else load_catalog(Path(catalog))
    return audit_release(Path(release), ExactNoise(os_entropy()), catalog=known, samples=samples)


def init(source: ReleasePath, output: ReleasePath, *, name: str | None = None) -> int:
    """Draft a catalog from raw tables; every bound read from data is marked `confirm: true`.

    Args:
        source: a folder of Parquet or CSV files, or a DuckDB file.
        output: the catalog to write; must not exist.
        name: the catalog's name.

    Returns:
        How many places wait for confirmation.

    Raises:
        SourceError: nothing readable there.
        InterfaceError: the output exists.

    **Privacy**: the draft shows bounds of the data to the curator. It is not private until confirmed.
    """
    from dpsql.publishing.draft import draft_from_source

    return draft_from_source(Path(source), Path(output), name)
