"""The whole of dpsql on one page: publish once, then answer.

    publish   raw rows -> integer histograms -> noise, once -> a release file; the ledger is charged
    buy       the same for a few statements alone
    append    one more batch of raw rows -> a stream release, which was charged when it was made
    collect   reports that people made private themselves -> a release file of the same shape
    query     SQL -> axes and leaf sets -> nodes of a view -> one DuckDB statement -> values with error bars

Publishing sees raw rows and draws noise (`dpsql.central`); answering sees releases alone (`dpsql.executor`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.federation import session
from dpsql.federation.session import ReleasePath
from dpsql.federation.session import use as use
from dpsql.progress import Progress, in_notebook, silent
from dpsql.release.request import requested
from dpsql.results.result import hide

if TYPE_CHECKING:
    from datetime import date
    from fractions import Fraction

    from dpsql.catalog import Catalog
    from dpsql.central.central import Published
    from dpsql.contributions.rehearsal import Guess
    from dpsql.curator.audit import AuditReport, Forgotten
    from dpsql.curator.certificate import Certificate
    from dpsql.curator.design import CatalogDesign
    from dpsql.curator.draft import CatalogDraft, CuratorChoices, DraftWorkload, Sketch
    from dpsql.curator.forecast import PlanReport
    from dpsql.engines.frames import Frames
    from dpsql.ledger.store import BudgetReport
    from dpsql.local.forecast import CollectionForecast
    from dpsql.local.run import Collected
    from dpsql.release.verify import Verified
    from dpsql.results.result import Result
    from dpsql.streams.publish import Appended, Arrival, Compared


def publish(
    catalog: ReleasePath | Catalog, output: ReleasePath, *, tables: Frames | None = None, label: str | None = None,
    ledger: ReleasePath | None = None, new_ledger: bool = False, confirm: bool = False, other_people: str = "",
    progress: Progress | None = None,
) -> Published:  # fmt: skip
    """Spend the budget of a catalog once and write a release.

    Args:
        catalog: the YAML file, or a `dpsql.Catalog`.
        output: the release file to make.
        tables: table -> data frame (pandas, polars, pyarrow, DuckDB), for every table; no source is read then.
        label: makes a repeat safe; by default the output's name. The same specification and label return the existing
            release, or a copy at the output, and charge nothing. Data are not compared: for new rows, change either.
        ledger: the ledger's file, where it is not the catalog's.
        new_ledger: take tables that another ledger of this computer has charged: they are about other people now.
        confirm: compare the rows of tables that are new to the lineage with those of other lineages, and refuse a table
            that was only renamed. The refusal is private and outside of epsilon; `dpsql publish` does so at a terminal.
        other_people: why rows that are alike are about other people all the same; kept in the ledger.
        progress: called with each step, a value that prints as a line.

    Returns:
        Where the release is, what was charged and what remains.

    Raises:
        CatalogError, SourceError: the catalog or its source is wrong; nothing was charged.
        BudgetExceeded, LineageError, ReleaseExists, IntegrityError: the ledger refuses; nothing was drawn.

    **Privacy**: docs/privacy.md section 1, in the catalog's unit, neighbours and epsilon.
    """
    from dpsql.central.central import publish_release
    from dpsql.curator.frames import curated
    from dpsql.ledger.identity import memory_of_this_computer
    from dpsql.noise import ExactNoise, os_entropy

    entropy = os_entropy()
    with curated(catalog, tables, ledger) as star:
        return publish_release(
            star, Path(output), noise=ExactNoise(entropy), key=entropy(32), label=label,
            progress=progress or in_notebook() or silent, memory=memory_of_this_computer(new_ledger=new_ledger),
            compare=confirm or bool(other_people), other_people=other_people,
        )  # fmt: skip


def buy(
    catalog: ReleasePath, statements: str | Sequence[str], output: ReleasePath, *, epsilon: Fraction | str,
    keys_of: ReleasePath | None = None, label: str | None = None, ledger: ReleasePath | None = None,
    new_ledger: bool = False, progress: Progress | None = None,
) -> Published:  # fmt: skip
    """Publish just what a few statements need, with the least error for exactly these.

    Args:
        catalog: the YAML file; statements are about axes that its views have.
        statements: SQL, one or several.
        output: the release file to make. It answers these statements and what follows from them, and refuses others.
        epsilon: spent from the catalog's lineage, at its delta: a number as text, or a fraction.
        keys_of: a release of the lineage whose lists of private keys are taken; a purchase finds none of its own.
        label, ledger, new_ledger, progress: as for `publish`.

    Returns:
        Where the release is, what was charged and what remains. `quote` predicts the errors beforehand.

    Raises:
        InterfaceError: no statement, more of them than such a release can hold, or no epsilon.
        dpsql.errors.Error: a statement cannot be read or answered, or as for `publish`.

    **Privacy**: as `publish`, with this epsilon. The statements become public.
    """
    from dpsql.central.central import publish_release
    from dpsql.curator.buy import read_purchase
    from dpsql.ledger.identity import memory_of_this_computer
    from dpsql.noise import ExactNoise, os_entropy

    entropy, bought = os_entropy(), read_purchase(catalog, statements, epsilon, ledger, keys_of)
    return publish_release(
        bought, Path(output), noise=ExactNoise(entropy), key=entropy(32), label=label, progress=progress or silent,
        memory=memory_of_this_computer(new_ledger=new_ledger),
    )  # fmt: skip


def quote(
    catalog: ReleasePath, statements: str | Sequence[str], *, epsilon: Fraction | str,
    keys_of: ReleasePath | None = None, ledger: ReleasePath | None = None,
) -> PlanReport:  # fmt: skip
    """Forecast a purchase: the standard error of each statement at an epsilon, before anything is spent.

    Args:
        catalog, statements, epsilon, keys_of, ledger: as for `buy`, what is raised too; a ledger is read for keys.

    **Privacy**: spends nothing and opens no private table.
    """
    from dpsql.curator.buy import read_purchase
    from dpsql.curator.forecast import plan_catalog

    workload = (statements,) if isinstance(statements, str) else tuple(statements)
    return plan_catalog(read_purchase(catalog, workload, epsilon, ledger, keys_of), workload)


def append(
    release: ReleasePath,
    source: ReleasePath | None,
    batch: str | date,
    *,
    catalog: ReleasePath,
    ledger: ReleasePath | None = None,
    new_ledger: bool = False,
    progress: Progress | None = None,
) -> Appended:
    """Append one batch to a stream release; the first append makes it and spends the whole budget.

    Args:
        release: the stream directory.
        source: a file with the rows that arrive, or None for the catalog's rows whose time lies in the batch.
        batch: a date or time inside the batch.
        catalog: the YAML file, with `stream`.
        ledger, new_ledger, progress: as for `publish`; a stream's private state lies next to its ledger.

    Returns:
        What was appended and charged. A batch that is public already is a no-op, whatever rows come.

    Raises:
        CatalogError, SourceError, BatchOrderError, PrivacyError, IntegrityError: refused; nothing was drawn.

    **Privacy**: docs/privacy/streams.md; every append after the first one costs nothing.
    """
    from dpsql.catalog import load_catalog
    from dpsql.ledger.identity import memory_of_this_computer
    from dpsql.noise import ExactNoise, os_entropy
    from dpsql.streams.publish import Chance, append_batch

    entropy = os_entropy()
    return append_batch(
        load_catalog(Path(catalog), ledger), Path(release), _arrival(batch, source),
        Chance(ExactNoise(entropy), entropy), progress=progress or silent,
        memory=memory_of_this_computer(new_ledger=new_ledger),
    )  # fmt: skip


def _arrival(batch: str | date, source: ReleasePath | None) -> Arrival:
    from dpsql.streams.publish import Arrival

    label = batch if isinstance(batch, str) else batch.isoformat()
    return Arrival(label, None if source is None else Path(source))


def check_batch(
    release: ReleasePath,
    source: ReleasePath | None,
    batch: str | date,
    *,
    catalog: ReleasePath,
    ledger: ReleasePath | None = None,
) -> Compared:
    """Compare rows with those of a published batch; nothing is appended or charged.

    Args:
        release, source, batch, catalog, ledger: as for `append`.

    Returns:
        Which batch it is; the rows are the same.

    Raises:
        BatchConflict: the batch was made of other rows.
        BatchOrderError: the batch is not public.
        CatalogError, SourceError, OperationalError: the rows or the private state cannot be read.

    **Privacy**: an exact test of equality, for whoever holds the rows and the private state; its outcome is private.
    """
    from dpsql.catalog import load_catalog
    from dpsql.streams import publish as stream

    return stream.check_batch(load_catalog(Path(catalog), ledger), Path(release), _arrival(batch, source))


def collection_plan(
    catalog: ReleasePath,
    output: ReleasePath,
    *,
    people: int,
    label: str = "",
    after: ReleasePath | None = None,
    reports: ReleasePath | Sequence[ReleasePath] = (),
    engine: str | None = None,
    root: str = "",
    target: float | None = None,
) -> CollectionForecast:
    """Write the public plan of a local collection.

    Args:
        catalog: the YAML file, with `collection:`.
        output: the plan to write; send it to everybody.
        people: respondents expected; grids depend on it. Not read with `target`.
        label: tells repeated collections of one catalog apart; a device answers each once.
        after: with `tau: estimate`, the first round's plan; without it that first round is planned.
        reports, engine, root: the first round's reports, as in `collect`.
        target: plan for so many people that no predicted error exceeds this share of them, such as 0.05.

    Returns:
        The people planned for, predicted standard errors, each view's cost, and remedies for suppressed answers.

    Raises:
        CatalogError: the catalog cannot be collected.
        InterfaceError: fewer than one person, only one of `after` and `reports`, or a target out of reach.
        DataError: `after` is no first round of this catalog, or none of its reports was accepted.
        OperationalError: a file cannot be read or written, or the output holds another plan.

    **Privacy**: public facts, and reports that were private before they left a device.
    """
    from dpsql.errors import InterfaceError
    from dpsql.local.run import came_back, write_plan
    from dpsql.noise import os_entropy

    if (after is None) != (not reports):
        raise InterfaceError("a second plan needs the first and its reports", hint="give both or neither")
    first = None if after is None else came_back(after, reports, os_entropy()(32), engine, root)
    return write_plan(Path(catalog), Path(output), people, label, first, target)


def collect(
    plan: ReleasePath,
    reports: ReleasePath | Sequence[ReleasePath],
    output: ReleasePath,
    *,
    catalog: ReleasePath | None = None,
    state: ReleasePath | None = None,
    engine: str | None = None,
    root: str = "",
    progress: Progress | None = None,
) -> Collected:
    """Count people's reports and write a release of the same shape as a central one.

    Where the joint fit of several axes takes more than a second (the plan says how long), a release without it is
    written first, under another id; the fitted release then replaces it. Stopping the fit keeps the first.

    Args:
        plan: the plan that people answered.
        reports: Parquet, CSV and JSON-lines files, or folders of them, one or several; with `engine`, tables.
        output: the release file to make.
        catalog: the YAML file; only where an axis is a public dimension's rows.
        state: a private file with the counts so far, for later runs with more files.
        engine: `postgresql` or `spark`: the server counts the reports, and only counts leave it.
        root: its address, as in a catalog's `source`; empty for its client's own profile.
        progress: as for `publish`.

    Returns:
        Where the release is, and how many reports were accepted and rejected, by reason.

    Raises:
        OperationalError: a file cannot be opened or written, or the output exists.
        InterfaceError: the catalog is needed, or is not the plan's; a state together with a server.
        DataError: no report was accepted.
        SourceError, EngineLost: a table holds no reports, or the server was lost.

    **Privacy**: post-processing; each person spent the plan's epsilon on her own device. No cap is charged.
    """
    from dpsql.ledger.identity import new_release_id
    from dpsql.local import run
    from dpsql.noise import os_entropy

    back = run.came_back(plan, reports, os_entropy()(32), engine, root)._replace(
        catalog=None if catalog is None else Path(catalog),
        state=None if state is None else Path(state),
    )
    return run.collect(back, Path(output), new_release_id(), progress or silent)


def forget(held: ReleasePath, people: Sequence[str], *, catalog: ReleasePath | None = None) -> Forgotten:
    """Erase the records of single people in a collection's state, stored reports or a stream.

    Args:
        held: a collection's state, a file of stored reports, or a stream's directory; releases record no person.
        people: tokens of reports, or keys of the stream's privacy unit, as text.
        catalog: the stream's catalog; its private state lies next to the ledger.

    Raises:
        InterfaceError: a stream without its catalog.
        OperationalError: it cannot be read or written; nothing was erased.

    **Privacy**: docs/privacy.md, "Erasing a person". Rows are erased in your own sources, and what was published stays.
    """
    from dpsql.curator.audit import forget_people

    return forget_people(Path(held), people, None if catalog is None else Path(catalog))


def simulate(
    catalog: ReleasePath,
    output: ReleasePath,
    plan: ReleasePath,
    *,
    seed: int | None = None,
    label: str = "",
    progress: Progress | None = None,
) -> int:
    """Simulate the reports of the whole population of a raw star, for planning and demonstrations.

    Args:
        catalog: the YAML file, with `collection:` and a source.
        output: the Parquet file of reports to make.
        plan: the plan to write; it is stamped as simulated, and so is every release made with it.
        seed: for repeatable draws; None draws fresh ones.
        label, progress: as for `collection_plan` and `publish`.

    Returns:
        How many people reported.

    **Privacy**: none. One machine sees all rows; the output is stamped as simulated.
    """
    from dpsql.local.simulate import simulate_to_files

    return simulate_to_files(Path(catalog), Path(output), Path(plan), seed, label, progress or silent)


def query(
    sql: str,
    release: ReleasePath | Sequence[ReleasePath] | None = None,
    *,
    dialect: str = "duckdb",
    as_of: int | str | None = None,
    nonnegative: bool | None = None,
    combine: bool = False,
    min_relative_error: float | None = None,
) -> Result:
    """Answer one SQL statement.

    Args:
        sql: the statement.
        release: a release file or a stream directory, or several, combined as `connect` combines them; without it
            `$DPSQL_RELEASE`, else the one set by `use`.
        dialect: the SQL dialect the statement is written in.
        as_of: for streams, the newest batch wanted, by number or label.
        nonnegative: whether counts come from non-negative (biased) estimates; None as without `SET dp_nonnegative`
            (docs/sql.md, "Settings").
        combine: pool independent releases where that has the least error.
        min_relative_error: suppress groups as noise: the standard error of each of their numbers is at least so many
            times the number. A note says how many.

    Returns:
        Rows with standard errors, intervals, the plan and its provenance.

    Raises:
        ProgrammingError, NotSupportedError: the statement is wrong or no view can answer it.
        ReleaseError: the release cannot be opened.

    **Privacy**: post-processing of a release; costs nothing.
    """
    with requested():
        releases = session.opened(release, as_of, nonnegative=nonnegative, combine=combine)
        answer = releases.query(sql, dialect=dialect)
        return answer if min_relative_error is None else hide(answer, min_relative_error)


def explain(
    sql: str,
    release: ReleasePath | Sequence[ReleasePath] | None = None,
    *,
    dialect: str = "duckdb",
    as_of: int | str | None = None,
    combine: bool = False,
) -> str:
    """Explain how a statement would be answered, as numbered stages in words.

    Args:
        sql, release, dialect, as_of, combine: as for `query`.
    """
    return session.opened(release, as_of, combine=combine).explain(sql, dialect=dialect)


def plan(
    catalog: ReleasePath | Catalog, workload: Sequence[str] = (), *, guess: Guess | None = None,
    tables: Frames | None = None, keys: Mapping[str, int] | None = None,
) -> PlanReport:  # fmt: skip
    """Forecast a release's cost and errors before anything is spent.

    Args:
        catalog: the YAML file, or a `dpsql.Catalog`.
        workload: statements to predict standard errors for.
        guess: what is publicly known about tables with `max_ids: auto`, for their relative errors.
        tables: as for `publish`; public ones alone are read.
        keys: `table.column` -> keys that may be found of a column with `categories: private`; 400 unless it is said.

    Returns:
        Views with strategies, cells, bytes and seconds; the workload's errors; the break-even number of queries.

    Raises:
        CatalogError, SourceError: the catalog or a public table is wrong.

    **Privacy**: spends nothing and opens no private table.
    """
    from dpsql.curator.forecast import plan_catalog
    from dpsql.curator.frames import curated

    with curated(catalog, tables) as star:
        return plan_catalog(star, workload, guess=guess, keys=keys or {})


def budget(catalog: ReleasePath) -> BudgetReport:
    """The caps, spends and releases in a catalog's ledger, for the curator.

    Args:
        catalog: the YAML file.
    """
    from dpsql.catalog import load_catalog
    from dpsql.catalog.graph import ledger_path
    from dpsql.ledger.store import budget_report

    return budget_report(ledger_path(load_catalog(Path(catalog))))


def audit(
    release: ReleasePath,
    *,
    catalog: ReleasePath | None = None,
    samples: int = 20_000,
    prove: bool = False,
    witness: ReleasePath | None = None,
    progress: Progress | None = None,
) -> AuditReport:
    """Check offline that a release contains what its catalog declares, and nothing else.

    Args:
        release: the release file.
        catalog: the curator's YAML file, to check the ledger and public tables too.
        samples: runs of the black-box auditor for each statistic; 0 leaves it out.
        prove: also publish made-up neighbours of this catalog whole, and measure their exact loss; needs `catalog`.
        witness: a file to write; another program checks the proof from it (docs/audit.md). Needs `prove`.
        progress: called with each step of proving.

    Returns:
        One line for each claim, and whether all hold.

    Raises:
        ReleaseError, CatalogError: a file cannot be opened.
        InterfaceError: a witness without a proof, or no catalog, or not the one that the release was made from.

    **Privacy**: reads no private table and spends nothing.
    """
    from dpsql.catalog import load_catalog
    from dpsql.curator.audit import audit_release
    from dpsql.errors import InterfaceError
    from dpsql.noise import ExactNoise, os_entropy

    if witness is not None and not prove:
        raise InterfaceError("a witness needs a proof, and none was requested", hint="pass --prove too")
    curated = None if catalog is None else load_catalog(Path(catalog))
    report = audit_release(Path(release), ExactNoise(os_entropy()), catalog=curated, samples=samples)
    if not prove:
        return report
    from dpsql.curator.prove import prove_release

    file = None if witness is None else Path(witness)
    return report.plus(prove_release(Path(release), curated, progress or silent, file).check)


def verify(release: ReleasePath, *, require_signature: str | None = None) -> Verified:
    """Check a release without its curator: signature, structure, every table.

    Args:
        release: a release file, or a stream directory, whose newest state is read.
        require_signature: a public key, or a file with one a line, of which one must have signed it; None takes
            `$DPSQL_REQUIRE_SIGNATURE`, else anybody's signature, or none.

    Returns:
        What it is and who signed it.

    Raises:
        ReleaseError: the first fault.

    **Privacy**: reads a release alone.
    """
    from dpsql.release.signature import required_signers
    from dpsql.release.verify import verify as verify_file

    return verify_file(Path(release), required_signers(require_signature))


def certificate(
    release: ReleasePath,
    *,
    catalog: ReleasePath | None = None,
    prove: bool = False,
    progress: Progress | None = None,
) -> Certificate:
    """Write a release's certificate for a data-protection officer: who is protected, the cost, the checks.

    Args:
        release: the release file, or a stream directory.
        catalog, progress: as for `audit`.
        prove: measure the exact loss of made-up neighbours and write it in; needs `catalog`.

    Returns:
        The certificate as values; `to_json()` gives plain ones, and `dpsql certificate` makes a page of them.

    Raises:
        ReleaseError, CatalogError: a file cannot be opened.
        InterfaceError: a local release, or as for `audit`.

    **Privacy**: reads no private table and spends nothing.
    """
    from contextlib import closing

    from dpsql.catalog import load_catalog
    from dpsql.curator.certificate import certify
    from dpsql.curator.prove import prove_release
    from dpsql.release import open_release

    path, curated = Path(release), None if catalog is None else load_catalog(Path(catalog))
    report = audit(path, catalog=catalog, samples=0)
    proof = prove_release(path, curated, progress or silent) if prove else None
    with closing(open_release(path, insecure=True)) as opened:
        return certify(opened, report, curated, proof)


def init(
    source: ReleasePath,
    output: ReleasePath,
    *,
    name: str | None = None,
    ask: Callable[[Sketch], CuratorChoices] | None = None,
    workload: DraftWorkload | None = None,
    encoding: str = "utf-8",
) -> CatalogDraft:
    """Draft a catalog from raw tables; every value read from private rows is marked `confirm: true`.

    Args:
        source: a folder of Parquet or CSV files, one such file, a DuckDB file, or `postgresql://..`.
        output: the catalog to write; must not exist.
        name: the catalog's name.
        ask: takes the sketch and returns the curator's choices; without it the draft leaves them open.
        workload: statements to design the views for, as `design` does.
        encoding: of CSV files.

    **Privacy**: the draft shows bounds of the data to the curator. It is not private until confirmed.
    """
    from dpsql.curator.draft import draft_from_source, leave_open

    return draft_from_source(fspath(source), Path(output), name, ask or leave_open, workload, encoding)


def design(catalog: ReleasePath, workload: Sequence[str], *, guess: Guess | None = None) -> CatalogDesign:
    """Design the views, cuts, measures and shares of least predicted error for a workload.

    Args:
        catalog: the YAML file; its views are ignored.
        workload: the statements.
        guess: publicly known numbers of units and rows, for relative errors.

    **Privacy**: spends nothing and opens no private table. The views become public with the release, and reveal what
        the statements reveal if private rows suggested them.
    """
    from dpsql.catalog.catalog import catalog_text
    from dpsql.curator.design import design_catalog

    return design_catalog(catalog_text(Path(catalog)), Path(catalog), workload, guess)
