"""Commands of the curator: publish, buy, append, budget, audit, certificate, the ledger's backup and move; those of a
local collection: collection-plan, collect, simulate, forget.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from dpsql import api
from dpsql.catalog.source import POSTGRESQL, SPARK
from dpsql.client import Plan
from dpsql.errors import InterfaceError
from dpsql.interfaces.cli import FILE, CommandOutput, cli, steps, tells, write_text
from dpsql.interfaces.cli.plan import plan_text
from dpsql.local.forecast import CollectionForecast, asks_rows_alone
from dpsql.local.plan import plan_body
from dpsql.local.smooth import SLOW

if TYPE_CHECKING:
    from dpsql.ledger.copies import Copied
    from dpsql.ledger.store import BudgetReport, LineageReport
    from dpsql.streams.publish import Appended, Compared

LEDGER = click.option("--ledger", type=FILE, help="the ledger's file (default: the catalog's)")
NEW_LEDGER = click.option(
    "--new-ledger", is_flag=True, help="these are not the people that another ledger here was charged for"
)


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="release file to write")
@click.option("--label", help="idempotence label (default: the output's name)")
@LEDGER
@NEW_LEDGER
@click.option(
    "--confirm",
    is_flag=True,
    help="compare rows with those of other lineages, as at a terminal; the refusal is private",
)
@click.option(
    "--other-people",
    default="",
    metavar="WHY",
    help="why similar rows are about other people; kept in the ledger",
)
@tells
def publish(catalog: Path, output: Path, confirm: bool, **options: Any) -> CommandOutput:
    """Spend the budget once and write a release of CATALOG.

    The same specification and label return the release as it is: data are not compared, since the answer would tell
    whether they are equal. Where it lies elsewhere, a copy is made at the output. To publish today's rows choose an
    output of another name or another --label.
    """
    with steps("publish") as progress:
        report = api.publish(
            catalog, output, confirm=confirm or sys.stdin.isatty(), progress=progress, **options
        )
    return CommandOutput(report.to_json(), report.summary())


@cli.command()
@click.argument("catalog", type=FILE)
@click.argument("statements", nargs=-1, required=True)
@click.option("--epsilon", required=True, help="epsilon to spend, at the catalog's delta; for instance 0.1")
@click.option("-o", "--output", type=FILE, help="release file to write")
@click.option("--label", help="idempotence label (default: the output's name)")
@click.option("--keys-of", type=FILE, help="release whose lists of private keys are taken, at no charge")
@click.option("--plan", "only_plan", is_flag=True, help="forecast the answers' errors; spends nothing")
@LEDGER
@NEW_LEDGER
@tells
def buy(
    catalog: Path,
    statements: tuple[str, ...],
    epsilon: str,
    output: Path | None,
    only_plan: bool,
    **options: Any,
) -> CommandOutput:
    """Publish just what a few SQL STATEMENTS need of CATALOG, with the least error for exactly these.

    The release is charged to the catalog's lineage. Opened beside its other releases it answers these statements and
    what follows from them, and refuses others. The statements become public with it.
    """
    if only_plan:
        free = {name: options[name] for name in ("keys_of", "ledger")}
        quoted = api.quote(catalog, statements, epsilon=epsilon, **free)
        return CommandOutput(asdict(quoted), plan_text(quoted), result=True)
    if output is None:
        raise InterfaceError("no release is named", hint="pass -o more.dpsql, or --plan to spend nothing")
    with steps("buy") as progress:
        report = api.buy(catalog, statements, output, epsilon=epsilon, progress=progress, **options)
    return CommandOutput(report.to_json(), report.summary())


@cli.command()
@click.argument("release", type=FILE)
@click.option("--catalog", required=True, type=FILE, help="catalog with `stream`")
@click.option("--batch", required=True, help="a date or time inside the batch, for instance 2026-11-21")
@click.option("--source", type=FILE, help="Parquet or CSV file with the rows that arrive")
@click.option(
    "--check", is_flag=True, help="compare with the rows that a public batch was made of; appends nothing"
)
@LEDGER
@NEW_LEDGER
@tells
def append(
    release: Path, catalog: Path, batch: str, source: Path | None, check: bool, **charged: Any
) -> CommandOutput:
    """Append one batch to the stream directory RELEASE; the first append makes it and spends its budget.

    Without --source the batch is the rows of the catalog's source whose time lies in it. A batch that is public stays
    as it is, whatever rows come; --check tells whether they are those that it was made of (exit code 3 if not). That,
    and what is reported about rows that were left out, is private.
    """
    report: Appended | Compared
    if check:
        report = api.check_batch(release, source, batch, catalog=catalog, ledger=charged["ledger"])
    else:
        with steps("append") as progress:
            report = api.append(release, source, batch, catalog=catalog, progress=progress, **charged)
    return CommandOutput(report.to_json(), report.summary())


@cli.command()
@click.argument("catalog", type=FILE)
@tells
def budget(catalog: Path) -> CommandOutput:
    """Show what the ledger of CATALOG holds: each lineage's cap, what it has spent on which releases, what is left.

    What people spend on their own devices, one report each, is charged to no lineage.
    """
    report = api.budget(catalog)
    return CommandOutput(budget_json(report), budget_text(report), result=True)


def budget_json(report: BudgetReport) -> dict[str, Any]:
    """A budget report as plain values; amounts are fractions as text, in epsilon at the lineage's delta."""
    return {"ledger": str(report.ledger), "lineages": [_lineage_json(lineage) for lineage in report.lineages]}


def _lineage_json(report: LineageReport) -> dict[str, Any]:
    identity = report.lineage
    keys = {"cap": identity.key_delta, "spent": report.key_spent} if identity.key_delta else {}
    mu2 = {"cap": identity.limit, "spent": report.spent, "left": report.left} if identity.delta else {}
    return {
        "lineage": identity.name,
        "unit": identity.unit,
        "neighbours": identity.neighbours,
        "currency": identity.currency.name,
        "delta": str(identity.delta),
        "cap": str(identity.cap),
        "spent": str(report.spent_epsilon),
        "left": str(report.left_epsilon),
        "mu2": {name: str(value) for name, value in mu2.items()} or None,
        "key_delta": {name: str(value) for name, value in keys.items()} or None,
        "releases": [
            {name: getattr(release, name) for name in ("label", "release_id", "published_at", "state")}
            | {"path": str(release.path), "present": release.present, "cost": str(release.epsilon)}
            | {"spends": [
                {"what": line.purpose, "amount": str(line.amount), "currency": line.currency} for line in release.lines
            ]}
            for release in report.entries
        ],
    }  # fmt: skip


def budget_text(report: BudgetReport) -> str:
    """A budget report for people."""
    if not report.lineages:
        return f"{report.ledger}: nothing has been spent yet"

    lines = []
    for lineage in report.lineages:
        identity = lineage.lineage
        lines.append(
            f"{identity.name}: {amount(lineage.spent_epsilon)} of {amount(identity.cap)} epsilon spent"
            f"{identity.currency.at_delta}, {amount(lineage.left_epsilon)} left (unit {identity.unit}, "
            f"{identity.neighbours})"
        )
        if identity.delta:
            lines.append(
                f"  mu^2 {amount(lineage.spent)} of {amount(identity.limit)} spent, {amount(lineage.left)} left: "
                "under a delta mu^2 adds up and epsilon does not"
            )
        if identity.key_delta:
            lines.append(
                f"  key_delta {amount(lineage.key_spent)} of {amount(identity.key_delta)} spent: "
                "the part of delta that finding private keys may spend"
            )
        for release in lineage.entries:
            why = f", {release.unshown}" if release.unshown else ""
            lines.append(
                f"  {release.published_at}  {amount(release.epsilon)}  {release.label} -> {release.path}{why}"
            )
            for line in release.lines:  # as a part of what was charged: it has no epsilon of its own
                part = float(line.amount / release.cost) if release.cost else 0.0
                lines.append(f"    {part:.1%}  {line.purpose}")
    return "\n".join(lines)


def amount(value: Fraction) -> str:
    """A budget in four significant digits.

    >>> amount(Fraction(1, 6)), amount(Fraction(4))
    ('0.1667', '4')
    """
    return f"{float(value):.4g}"


@cli.command()
@click.argument("release", type=FILE)
@click.option("--catalog", type=FILE, help="also check the ledger and public tables")
@click.option(
    "--samples",
    type=click.IntRange(0, 10**6),
    default=20_000,
    show_default=True,
    help="of the auditor; 0: none",
)
@click.option(
    "--prove", is_flag=True, help="also measure the exact loss of made-up neighbours; needs --catalog"
)
@click.option(
    "--witness", type=FILE, help="JSON lines from which another program checks the proof; needs --prove"
)
@tells
def audit(
    release: Path, catalog: Path | None, samples: int, prove: bool, witness: Path | None
) -> CommandOutput:
    """Check offline that RELEASE holds what its catalog says and nothing else; exit code 3 if not.

    Everything in the file but the noisy integers is recomputed from its catalog and from those integers. With --prove
    rows are made up for the catalog, neighbours are published whole, and what tells them apart is added up exactly: a
    loss above what the ledger was charged would prove the promise false. No private table is opened.
    """
    with steps("audit") as progress:
        report = api.audit(
            release, catalog=catalog, samples=samples, prove=prove, witness=witness, progress=progress
        )
    return CommandOutput(report.to_json(), report.text(), result=True, code=0 if report.held else 3)


@cli.command()
@click.argument("release", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="HTML page to write; its JSON goes beside it")
@click.option("--catalog", type=FILE, help="the curator's, for the ledger's line")
@click.option("--prove", is_flag=True, help="measure the exact loss of made-up neighbours; needs --catalog")
@tells
def certificate(release: Path, output: Path, catalog: Path | None, prove: bool) -> CommandOutput:
    """Write what a data-protection officer files about RELEASE, a page and JSON; exit code 3 if a check fails.

    Who is protected and how, mechanisms, the ledger's line, what was checked and measured by which version and when,
    and what is not promised.
    """
    from dpsql.interfaces.web.page import certificate_page

    with steps("certificate") as progress:
        written = api.certificate(release, catalog=catalog, prove=prove, progress=progress)
    json_file = output.with_suffix(".json")
    write_text(output, certificate_page(written))
    write_text(json_file, json.dumps(written.to_json(), indent=2) + "\n")
    return CommandOutput(written.to_json(), f"wrote {output} and {json_file}", code=0 if written.held else 3)


@cli.group()
def ledger() -> None:
    """Back up the ledger, or move it; it must never exist twice."""


@ledger.command()
@click.argument("ledger", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="the copy; its head is written beside it")
@click.option("--with-key", is_flag=True, help="copy the signing key too: whoever reads it signs as you")
@tells
def backup(ledger: Path, output: Path, with_key: bool) -> CommandOutput:
    """Copy LEDGER while nobody spends from it, checked and whole, for its owner's eyes alone.

    A restored copy is refused once a release is out that it does not know. Stream states are no part of it: never
    restore an older one.
    """
    from dpsql.ledger.copies import backup_ledger

    return _told("copied", backup_ledger(ledger, output, with_key=with_key))


@ledger.command()
@click.argument("old", type=FILE)
@click.argument("new", type=FILE)
@tells
def move(old: Path, new: Path) -> CommandOutput:
    """Move the ledger OLD to NEW with its key and the private states of its streams.

    A note stays at OLD, so nothing is spent there again. Then name NEW under `ledger` in the catalogs.
    """
    from dpsql.ledger.copies import move_ledger

    return _told("moved", move_ledger(old, new))


def _told(how: str, copied: Copied) -> CommandOutput:
    names = ", ".join(file.name for file in copied.files)
    value = {
        "ledger": str(copied.path),
        "entries": copied.entries,
        "files": [str(file) for file in copied.files],
    }
    return CommandOutput(
        value, f"{how} the ledger to {copied.path}: {copied.entries} entries; beside it {names}"
    )


ENGINE = click.option(
    "--engine", type=click.Choice([kind.name for kind in (POSTGRESQL, SPARK)]),
    help="REPORTS are tables of this server, which counts them",
)  # fmt: skip
ROOT = click.option(
    "--root", default="", help="the server's address, as in a catalog's source; ${NAME} expands"
)


class ShareParam(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions alone
    """A share such as 5% or 0.05."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        try:
            return float(value.removesuffix("%")) / 100 if str(value).endswith("%") else float(value)
        except ValueError:
            self.fail("write a share such as 5% or 0.05", param, context)


@cli.command("collection-plan")
@click.argument("catalog", type=FILE)
@click.argument("reports", nargs=-1)
@click.option("-o", "--output", required=True, type=FILE, help="plan to write")
@ENGINE
@ROOT
@click.option(
    "--after", type=FILE, help="with tau: estimate, the first round's plan; REPORTS are its reports"
)
@click.option(
    "--people", type=click.IntRange(1), default=100_000, show_default=True, help="expected to report"
)
@click.option(
    "--target", type=ShareParam(),
    help="plan for as many people as keep every error below this share of them (5% or 0.05)",
)  # fmt: skip
@click.option("--label", default="", help="distinguishes repeated collections; a device answers each once")
@click.option("--for", "column", help="of a column with `reported:`: table.column")
@tells
def collection_plan(
    catalog: Path, output: Path, people: int, column: str | None, **asked: Any
) -> CommandOutput:
    """Write the public plan that people's devices answer, and say how noisy the answers will be.

    With --for it is the plan of a column that only devices know, whose reports the curator joins to her rows.

    With `tau: estimate` the first plan asks a part of the people how many rows they have; the second, made from their
    REPORTS with --after, asks the others.
    """
    if column is not None:
        from dpsql.local.survey import write_reported_plan

        write_reported_plan(catalog, column, output)
        value = {"plan": str(output), "column": column}
        return CommandOutput(value, f"wrote {output}: one report a person about {column}")
    forecast = api.collection_plan(catalog, output, people=people, **asked)
    predictions, plan = forecast.predictions, forecast.plan
    lines = [
        f"wrote {output.with_name(f'{output.stem}.{name}{output.suffix}')} for {name}, epsilon {epsilon}"
        for name, epsilon in forecast.services.items()
    ]
    place = "" if plan is None or plan.rounds == 1 else f", round {plan.round + 1} of {plan.rounds}"
    lines.append(f"wrote {output} (tau {1 if plan is None else plan.tau}{place})")
    if asked["target"] is not None:
        lines.append(
            f"for errors of at most {asked['target']:.3%} of the people, {forecast.people} people must answer"
        )
    taken = f"if {forecast.people} people take part, one standard error of"
    if plan is not None and asks_rows_alone(plan):
        lines += [
            f"{taken} a person's mean number of rows is about",
            f"  {predictions[0].error:.2g} rows; the second plan will forecast the errors of answers",
        ]
    else:
        lines.append(f"{taken} a count is about")
        lines += [
            f"  {row.error:8.3%} of the people, {row.error * forecast.people:12,.0f} rows   {row.question}"
            for row in predictions
        ]
        lines += _cost_lines(forecast)
    if plan is not None and plan_body(plan).get("threshold", 0) > 0:
        lines.append(_dominated(plan))
    if forecast.seconds >= SLOW:
        lines.append(
            f"`dpsql collect` will write a release, and then fit axes together for about {forecast.seconds:,.0f} s "
            "of one core"
        )
    told = [
        {"question": row.question, "error": row.error, "people": forecast.people}
        | {"views": {c.view: c.part for c in forecast.costs if c.question == row.question}}
        | {"is_noise": bool(row.axes) and row.is_noise}
        for row in predictions
    ]
    return CommandOutput(told, "\n".join(lines), result=True)


def _cost_lines(forecast: CollectionForecast) -> list[str]:
    """Cost of each view, and the questions that are lost in the noise."""
    lines = []
    if forecast.plan is not None and forecast.costs:
        lines.append(
            f"everybody answers one question with all of epsilon {forecast.plan.epsilon}; of the people"
        )
        lines += [
            f"  {cost.part:8.1%} are asked about {cost.view}, whose largest error is {cost.error:.3%}: {cost.question}"
            for cost in forecast.costs
        ]
    lines += [
        f"too noisy: the error of {row.question} is more than half of such an answer; more people (--target) or "
        "epsilon, wider cuts or fewer views help"
        for row in forecast.predictions
        if row.axes and row.is_noise
    ]
    return lines


def _dominated(plan: Plan) -> str:
    """Sizes at which the default plan errs less than AHEAD: benchmarks/results/local.md."""
    if len(plan.axes) == 1:
        return (
            "kind: ahead is dominated on one axis: counts of the default plan (`kind: auto`) erred less in 23 "
            "of 24 settings on six columns, by .2 to 1.2 of AHEAD's squared error"
        )
    return (
        "kind: ahead is dominated by the default plan (`kind: auto`) unless people crowd in narrow clusters: on bells "
        "of two axes that erred by a third of AHEAD's squared error, of three by a sixteenth; on clusters of two axes "
        "by 4.7 times at epsilon 1, of three by 1.3 times"
    )


@cli.command()
@click.argument("plan", type=FILE)
@click.argument("reports", nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=FILE, help="release file to write")
@ENGINE
@ROOT
@click.option("--catalog", type=FILE, help="needed where an axis is a public dimension's rows")
@click.option("--state", type=FILE, help="private file that remembers what was counted, for later runs")
@click.option(
    "--for", "column", help="store reports about a column with `reported:`, table.column, for publish"
)
@tells
def collect(
    plan: Path, reports: tuple[str, ...], output: Path, column: str | None, **asked: Any
) -> CommandOutput:
    """Count REPORTS (Parquet, CSV, JSON lines, or folders of these) of PLAN and write a release.

    With --engine they are tables of a server, and only counts leave it.

    With --for they are about a column that only devices know: they are checked and stored for the curator's publish.
    """
    if column is not None:
        if asked["engine"]:
            raise InterfaceError(
                "publish joins stored reports from a file", hint="name files without --engine"
            )
        from dpsql.local.survey import store_reports

        people, rejected = store_reports(plan, column, [Path(spool) for spool in reports], output)
        lines = [f"wrote {output}: reports of {people} people about {column}"]
        lines += [f"  left out {count}: {reason}" for reason, count in rejected.items()]
        stored = {"reports": str(output), "path": str(output), "people": people, "left_out": rejected}
        return CommandOutput(stored, "\n".join(lines))
    with steps("collect") as progress:
        done = api.collect(plan, reports, output, progress=progress, **asked)
    manifest = done.manifest
    lines = [f"wrote {done.path}: {manifest.accepted} of {manifest.reports} reports accepted"]
    lines += [f"  rejected {count}: {reason}" for reason, count in manifest.rejected.items()]
    return CommandOutput({"release": str(done.path), **manifest._asdict()}, "\n".join(lines))


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="Parquet file of reports to write")
@click.option("--plan", type=FILE, help="plan to write (default: beside the reports, .plan.json)")
@click.option("--seed", type=int, help="for repeatable draws")
@click.option("--label", default="", help="distinguishes repeated collections")
@tells
def simulate(catalog: Path, output: Path, plan: Path | None, seed: int | None, label: str) -> CommandOutput:
    """Let everybody of CATALOG's raw star report; protects nobody, and what is made of it says so."""
    plan_file = plan or output.with_suffix(".plan.json")
    with steps("simulate") as progress:
        people = api.simulate(catalog, output, plan_file, seed=seed, label=label, progress=progress)
    return CommandOutput(
        {"reports": str(output), "plan": str(plan_file), "people": people},
        f"wrote {output} and {plan_file}: {people} simulated reports; they protect nobody",
    )


@cli.command()
@click.argument("held", type=FILE)
@click.option(
    "--people", type=click.File(encoding="utf-8"), required=True,
    help="their tokens or keys, one a line; - reads standard input",
)  # fmt: skip
@click.option("--catalog", type=FILE, help="of a stream: its catalog")
@tells
def forget(held: Path, people: TextIO, catalog: Path | None) -> CommandOutput:
    """Erase some people from HELD: a collection's state, stored reports, or a stream.

    People are read from a file, since a command's words are seen by others. Releases and ledgers keep nothing of one
    person.
    """
    try:
        keys = [line.strip() for line in people if line.strip()]
    except UnicodeDecodeError as error:
        raise InterfaceError("--people is not UTF-8 text", hint="write one token or key a line") from error
    done = api.forget(held, keys, catalog=catalog)
    return CommandOutput(done._asdict(), done.said, result=True)
