"""All checks of one release, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb

from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.graph import ledger_path
from dpsql.errors import Error
from dpsql.inspection.numbers import check_budgets, check_estimates, check_noise, check_sums, read_views
from dpsql.inspection.replan import replan
from dpsql.inspection.report import AuditReport, Check
from dpsql.inspection.sampling import check_sampled
from dpsql.inspection.streams import audit_stream
from dpsql.inspection.tables import check_axes, check_tables
from dpsql.ledger import ledger_entries
from dpsql.ledger.files import file_hash
from dpsql.ledger.stated import at_delta
from dpsql.noise import Noise
from dpsql.release import Release, open_release


def audit_release(path: Path, noise: Noise, *, catalog: Catalog | None, samples: int) -> AuditReport:
    """Check a release file offline.

    Args:
        path: the file, or a stream directory.
        noise: for the auditor's own runs.
        catalog: the curator's catalog, for the ledger and for public tables; None to work from the file alone.
        samples: runs of the auditor for each statistic; 0 leaves it out.

    Returns:
        One line for each claim. It is never an error that a claim fails.

    Raises:
        ReleaseError: the file cannot be opened at all.

    **Privacy**: reads the release, public tables and, with a catalog, the ledger; no private table.
    """
    if path.is_dir():
        return audit_stream(path, catalog)
    release = open_release(path, insecure=True)
    try:
        return AuditReport(path, tuple(_checks(release, noise, catalog, samples)))
    finally:
        release.close()


def _checks(release: Release, noise: Noise, catalog: Catalog | None, samples: int) -> Iterator[Check]:
    test = bool(release.meta.get("insecure_entropy"))
    yield Check("noise from the system's entropy", not test, "test entropy protects nobody" if test else "")
    if catalog is not None and "local" in release.meta:
        yield Check("charged to the ledger", None, "nothing: people spend on their own devices")
        same = json.loads(catalog.to_json()) == release.meta["catalog"]
        yield Check("the catalog is the one it was made from", same)
    elif catalog is not None:
        yield from _check_ledger(release, catalog)
    vouched = release.meta["privacy"].get("vouched")
    if vouched:
        yield Check(
            f"rows of {', '.join(vouched)} are each unit's own", None, "the curator vouches: trusted SQL"
        )
    try:
        yield from check_tables(release)
        yield check_sums(release)
        if "local" in release.meta:
            yield Check("made again from its plan", None, "people's own reports: check the collection's plan")
            return
        yield from _recomputed(release, noise, catalog, samples)
    except Error as error:
        yield Check("made again from its catalog", False, str(error))
    except (duckdb.Error, KeyError, ValueError, IndexError) as error:
        yield Check("readable as a release of this version", False, type(error).__name__)


def _recomputed(release: Release, noise: Noise, catalog: Catalog | None, samples: int) -> Iterator[Check]:
    """What follows from the catalog and the noisy integers."""
    made = replan(release, catalog)
    yield from check_axes(release, made)
    stored = read_views(release, made)
    yield from check_budgets(release, made, stored)
    yield from check_estimates(release, made, stored)
    yield check_noise(stored)
    apart = sorted({s.view for i, s in enumerate(made.plan.statistics) if i not in made.linear})
    if apart:
        yield Check(
            f"numbers of {', '.join(apart)}", None, "mechanism or bounds were chosen from released numbers"
        )
    if samples:
        yield from check_sampled(made, stored, samples, noise)


def _check_ledger(release: Release, catalog: Catalog) -> Iterator[Check]:
    """The file is the one that was charged, for this specification and these amounts."""
    identity = str(release.meta["release_id"])
    entries = [entry for entry in ledger_entries(ledger_path(catalog)) if entry.release_id == identity]
    if not entries:
        yield Check("charged to the ledger", False, f"no entry of release {identity}")
        return
    (entry,) = entries
    charged = f"epsilon {float(entry.epsilon):g}{at_delta(Fraction(entry.delta))}, {entry.published_at}"
    yield Check("charged to the ledger", True, charged)
    yield Check("the file is the one that was charged", file_hash(release.path) == entry.sha256)
    yield Check("the catalog is the one it was made from", spec_hash(catalog) == release.meta["spec_hash"])
    spends = [[line.purpose, str(line.amount)] for line in entry.spend_lines()]
    yield Check("the file names the amounts that were charged", spends == release.meta["spends"])
