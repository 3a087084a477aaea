"""Commands of a local collection: collection-plan, collect, simulate."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TextIO

import click

from dpsql import api
from dpsql.catalog.source import POSTGRESQL, SPARK
from dpsql.client import Plan
from dpsql.errors import InterfaceError
from dpsql.interfaces.cli import FILE, CommandOutput, cli, steps, tells
from dpsql.local.forecast import CollectionForecast, asks_rows_alone
from dpsql.local.plan import plan_body
from dpsql.local.smooth import SLOW

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
        | {"ways_out": forecast.ways_out.get(row.question, [])}
        for row in predictions
    ]
    return CommandOutput(told, "\n".join(lines), result=True)


def _cost_lines(forecast: CollectionForecast) -> list[str]:
    """Cost of each view, and the changes that lift it out of the noise."""
    lines = []
    if forecast.plan is not None and forecast.costs:
        lines.append(
            f"everybody answers one question with all of epsilon {forecast.plan.epsilon}; of the people"
        )
        lines += [
            f"  {cost.part:8.1%} are asked about {cost.view}, whose largest error is {cost.error:.3%}: {cost.question}"
            for cost in forecast.costs
        ]
    for question, ways in forecast.ways_out.items():
        lines.append(
            f"too noisy: the error of {question} is more than half of such an answer. Any of these helps:"
        )
        lines += [f"  {way}" for way in ways]
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
