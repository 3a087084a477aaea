"""Commands of a local collection: collection-plan, collect, simulate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from dpsql import api
from dpsql.doors.cli import FILE, Told, cli, steps, tells


@cli.command("collection-plan")
@click.argument("catalog", type=FILE)
@click.argument("reports", type=FILE, nargs=-1)
@click.option("-o", "--output", required=True, type=FILE, help="plan to write")
@click.option(
    "--after", type=FILE, help="with tau: estimate, the first round's plan; REPORTS are its reports"
)
@click.option(
    "--people", type=click.IntRange(1), default=100_000, show_default=True, help="expected to report"
)
@click.option("--label", default="", help="tells repeated collections apart; a device answers each once")
@tells
def collection_plan(catalog: Path, output: Path, people: int, **asked: Any) -> Told:
    """Write the public plan that people's devices answer, and say how noisy the answers will be.

    With `tau: estimate` the first plan asks a part of the people how many rows they have; the second, made from their
    REPORTS with --after, asks the others.
    """
    predictions = api.collection_plan(catalog, output, people=people, **asked)
    lines, plan = [], json.loads(output.read_bytes())
    if "dpsql_services" in plan:
        for name in plan["plans"]:
            lines.append(f"wrote {output.with_name(f'{output.stem}.{name}{output.suffix}')} for {name}")
        plan |= {"tau": 1, "rounds": 1}
    place = f", round {plan['round'] + 1} of {plan['rounds']}" if plan["rounds"] > 1 else ""
    lines.append(f"wrote {output} (tau {plan['tau']}{place})")
    if [view["kind"] for view in plan.get("views", ())] == ["rows"]:
        lines += [
            f"if {people} people take part, one standard error of a person's mean number of rows is about",
            f"  {predictions[0].error:.2g} rows; the second plan will say how well questions are answered",
        ]
    else:
        lines.append(f"if {people} people take part, one standard error of a count is about")
        lines += [
            f"  {error:8.3%} of the people, {error * people:12,.0f} rows   {question}"
            for question, error in predictions
        ]
    return Told([p._asdict() for p in predictions], "\n".join(lines), result=True)


@cli.command()
@click.argument("plan", type=FILE)
@click.argument("reports", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", required=True, type=FILE, help="release file to write")
@click.option("--catalog", type=FILE, help="needed where an axis is a public dimension's rows")
@click.option("--state", type=FILE, help="private file that remembers what was counted, for later runs")
@tells
def collect(
    plan: Path, reports: tuple[Path, ...], output: Path, catalog: Path | None, state: Path | None
) -> Told:
    """Count REPORTS (Parquet, CSV, JSON lines, or folders of these) of PLAN and write a release."""
    with steps("collect") as progress:
        done = api.collect(plan, reports, output, catalog=catalog, state=state, progress=progress)
    manifest = done.manifest
    lines = [f"wrote {done.path}: {manifest.accepted} of {manifest.reports} reports accepted"]
    lines += [f"  rejected {count}: {reason}" for reason, count in manifest.rejected.items()]
    return Told({"release": str(done.path), **manifest._asdict()}, "\n".join(lines))


@cli.command()
@click.argument("catalog", type=FILE)
@click.option("-o", "--output", required=True, type=FILE, help="Parquet file of reports to write")
@click.option("--plan", type=FILE, help="plan to write (default: beside the reports, .plan.json)")
@click.option("--seed", type=int, help="for repeatable draws")
@click.option("--label", default="", help="tells repeated collections apart")
@tells
def simulate(catalog: Path, output: Path, plan: Path | None, seed: int | None, label: str) -> Told:
    """Let everybody of CATALOG's raw star report; protects nobody, and what is made of it says so."""
    beside = plan or output.with_suffix(".plan.json")
    with steps("simulate") as progress:
        people = api.simulate(catalog, output, beside, seed=seed, label=label, progress=progress)
    return Told(
        {"reports": str(output), "plan": str(beside), "people": people},
        f"wrote {output} and {beside}: {people} simulated reports; they protect nobody",
    )
