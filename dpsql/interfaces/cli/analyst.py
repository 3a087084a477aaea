"""Commands of the analyst: query, explain, shell, report, export, explore, serve. They open releases alone.

doctor is about the installation.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import math
import os
import platform
import sys
from pathlib import Path
from typing import Any

import click
import duckdb

from dpsql import api
from dpsql.errors import Error, visible_lines
from dpsql.extras import EXTRAS
from dpsql.interfaces.cli import (
    FILE,
    CommandOutput,
    as_object,
    cli,
    say,
    steps,
    tells,
    wants_json,
    write_text,
)
from dpsql.progress import silent
from dpsql.release.promises import MIN_PEOPLE, raised_min_people
from dpsql.release.request import Request, heeding_keys
from dpsql.release.signature import REQUIRED
from dpsql.results.render import FORMATS, STYLES, notes_beside, render

SECONDS = click.FloatRange(0)
PORT = click.IntRange(0, 65535)
LEVEL = click.FloatRange(0.5, 0.9999)
MEMORY_A_CORE = 250
"""MB of answers that a server holds at most; in truth they take a sixth more."""
PAGE_SECONDS = 300.0
"""For a report: all its totals, examples and histograms."""
as_of = click.option("--as-of", help="of a stream: the newest batch wanted, by number or date")
combine = click.option("--combine", is_flag=True, help="also combine several releases in one answer")


def _require(context: click.Context, option: click.Parameter, value: str | None) -> None:
    """Let every release that this process and those it starts open be signed as required."""
    if value is not None:
        os.environ[REQUIRED] = value


def _hide(context: click.Context, option: click.Parameter, value: int | None) -> None:
    """Let every release that this process and those it starts open hide numbers of fewer people."""
    if value is not None:
        os.environ[MIN_PEOPLE] = str(max(value, raised_min_people()))


rule = click.option(
    "--min-people", type=click.IntRange(1), expose_value=False, callback=_hide,
    help="show no number of fewer people by its noisy estimate; raises the release's own, never lowers it",
)  # fmt: skip
signed = click.option(
    "--require-signature", metavar="KEY", expose_value=False, callback=_require,
    help=f"a public key, or a file of them, of which one must have signed each release; else ${REQUIRED}",
)  # fmt: skip
estimates = click.option(
    "--nonnegative/--unbiased", default=None, help="kind of counts; by default as the release prefers"
)
of_intervals = click.option("--level", type=LEVEL, default=0.95, show_default=True, help="of intervals")
several = click.argument("releases", type=FILE, nargs=-1, required=True)


@cli.command()
@several
@click.argument("sql")
@click.option("--format", "style", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--dialect", default="duckdb", show_default=True, help="SQL dialect of the statement")
@of_intervals
@as_of
@rule
@signed
@estimates
@combine
@click.option(
    "--min-relative-error", type=click.FloatRange(0, min_open=True),
    help="hide groups with relative errors of this or more, such as 0.5",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True, help="report as JSON, as `--format json` with command and code"
)
def query(
    releases: tuple[Path, ...], sql: str, style: str, level: float, as_json: bool, **asking: Any
) -> None:
    """Answer one SQL statement on RELEASES (files or streams); every aggregate comes with its error.

    Several releases of one population are alternatives: block by block the smallest predicted error answers.
    """

    if as_json:
        style = "json"
        wants_json()

    def answer() -> tuple[str, tuple[str, ...]]:
        answered = api.query(sql, release=releases, **asking).rounded()
        return render(answered, style, level), notes_beside(answered, style, level)

    shown, notes = heeding_keys(answer)
    click.echo(as_object(json.loads(shown)) if as_json else shown)
    for note in notes:
        say(f"note: {note}", err=True)


@cli.command()
@several
@click.argument("sql")
@click.option("--dialect", default="duckdb", show_default=True)
@as_of
@signed
@combine
@click.option(
    "--json", "as_json", is_flag=True, help="as JSON: every node with its estimate, noise, and errors"
)
def explain(releases: tuple[Path, ...], sql: str, as_json: bool, **asking: Any) -> None:
    """Say how a statement would be answered: route, view, nodes, predicted error, the DuckDB SQL."""

    if as_json:
        wants_json()

    def answer() -> Any:
        if not as_json:
            return api.explain(sql, release=releases, **asking)
        result = api.query(sql, release=releases, **asking)
        return {
            "columns": result.columns,
            "plan": result.plan,
            "blocks": result.decomposition,
            "stderr": result.stderr_rows,
            "provenance": result.provenance,
        }

    answered = heeding_keys(answer)
    click.echo(as_object(answered) if as_json else visible_lines(answered))


@cli.command()
@several
@click.option("-c", "--command", "commands", multiple=True, help="run a statement or command, then exit")
@click.option("-f", "--file", "script", type=FILE, help="run a file, then exit")
@click.option(
    "--format", "style", type=click.Choice(STYLES), help="table on a terminal, else csv",
    default=lambda: STYLES[0] if sys.stdout.isatty() else "csv",
)  # fmt: skip
@click.option("--level", type=LEVEL, default=0.95, show_default=True, help="of margins")
@as_of
@rule
@signed
@click.pass_context
def shell(
    context: click.Context, /, releases: tuple[Path, ...], commands: tuple[str, ...], script: Path | None,
    as_of: str | None, **shown: Any,
) -> None:  # fmt: skip
    """Ask RELEASES (files or streams) interactively; reads statements from standard input when it is not a terminal.

    Several releases of one population are alternatives: the smallest predicted error answers.
    """
    from dpsql.federation.session import open_session
    from dpsql.interfaces.shell import ShellState, interact, read_file, run_text

    opened = open_session(releases, as_of=as_of)
    state = ShellState(opened, terminal=sys.stdout.isatty(), **shown)
    try:
        texts = [*commands, *([] if script is None else [read_file(str(script))])]
        if not texts and sys.stdin.isatty():
            context.exit(interact(state))
        for text in texts or [sys.stdin.read()]:
            if code := run_text(text, state):
                context.exit(code)
    finally:
        state.redirect("")
        opened.close()


@cli.command()
@several
@click.option("-o", "--output", required=True, type=FILE, help="HTML file to write")
@signed
@tells
def report(releases: tuple[Path, ...], output: Path) -> CommandOutput:
    """Write one self-contained page about a release: totals, what to ask and how well, promise, spends, mechanisms.

    Of several RELEASES it is about the first, and says what all of them promise and whom each stands for.
    """
    from dpsql.federation.session import open_session
    from dpsql.interfaces.web.report import report_page

    with contextlib.closing(open_session(releases)) as opened, Request(PAGE_SECONDS).working():
        page = report_page(opened.releases[0], opened if len(releases) > 1 else None)
    write_text(output, page)
    return CommandOutput({"page": str(output), "bytes": len(page.encode())}, f"wrote {output}")


@cli.command()
@several
@click.option("-o", "--output", required=True, type=FILE, help="folder to make")
@click.option("--view", "views", multiple=True, help="write this view; may be repeated (default: all)")
@click.option("--dbt", is_flag=True, help="write sources.yml too, for dbt-duckdb")
@of_intervals
@as_of
@rule
@signed
@estimates
@tells
def export(
    releases: tuple[Path, ...], output: Path, views: tuple[str, ...], dbt: bool, level: float, **opening: Any
) -> CommandOutput:
    """Write the noisy tables of a release as Parquet files with their errors, for tools that speak no SQL.

    One file a view, one row a combination of leaves; schema.json says what the columns mean. Errors of sums of rows do
    not follow from those of the rows: ask them in SQL.
    """
    from dpsql.federation.session import open_session
    from dpsql.results.export import export as write

    # `MOST_WORK` bounds it beforehand
    session, request = open_session(releases, **opening), Request(math.inf)
    with contextlib.closing(session) as opened, steps("export") as progress, request.working():
        schema = write(opened, output, views, level, progress or silent, dbt=dbt)
    files = [f"{view['file']}: {view['rows']} rows" for view in schema["views"]]
    lines = [f"wrote {output}", *files, *(f"left out: {why}" for why in schema["left_out"])]
    return CommandOutput({"folder": str(output), **schema}, "\n".join(lines))


@cli.command()
@several
@click.option("--port", type=PORT, default=0, show_default=True, help="to listen on; 0 takes a free one")
@as_of
@rule
@signed
@click.option("--json", "as_json", is_flag=True, help="print the address as JSON")
def explore(releases: tuple[Path, ...], port: int, as_of: str | None, as_json: bool) -> None:
    """Explore RELEASES (files or streams) in a web page of this machine, until interrupted.

    Needs the extra `explore`. Whoever knows the printed address may ask; it is a new one each time.
    """
    if as_json:
        wants_json()
    from dpsql.federation.session import open_session
    from dpsql.interfaces.web.explore import serve

    def told(address: str) -> None:
        shown = as_object({"url": address}, indent=None) if as_json else f"open {address} (Ctrl-C ends it)"
        click.echo(shown, err=not as_json)

    with contextlib.closing(open_session(releases, as_of=as_of)) as opened:
        serve(opened, port, told)


@cli.command()
@several
@click.option("-o", "--output", required=True, type=FILE, help="folder to make")
@as_of
@rule
@signed
@estimates
@tells
def site(
    releases: tuple[Path, ...], output: Path, as_of: str | None, nonnegative: bool | None
) -> CommandOutput:
    """Write a folder of plain files for any host: every grouping by one column or two, and a builder without SQL.

    Nothing runs on the host, and the page fetches nothing from elsewhere.
    """
    from dpsql.federation.session import open_session
    from dpsql.interfaces.web.explore.answers import write_site

    session = open_session(releases, as_of=as_of, nonnegative=nonnegative)
    with contextlib.closing(session) as opened, steps("site") as progress, Request(math.inf).working():
        written = write_site(opened, output, progress or silent)
    left_out = [f"left out: {why}" for why in written["left_out"]]
    size = f"{written['questions']} questions, {written['bytes'] / 1e6:.1f} MB"
    return CommandOutput(written, "\n".join([f"wrote {output}: {size}; open {output}/index.html", *left_out]))


@cli.command()
@several
@click.option(
    "--claims", type=FILE, default="claims.jsonl", show_default=True, help="file that records the queries"
)
@as_of
@signed
def mcp(releases: tuple[Path, ...], claims: Path, as_of: str | None) -> None:
    """Offer RELEASES (files or streams) to agents as tools of the Model Context Protocol, on standard input and output.

    Needs the extra `mcp`. Each number of an answer has a claim; `dpsql check` looks the numbers of a report up again.
    """
    from dpsql.federation.session import open_session
    from dpsql.interfaces.agents import ClaimFile, tools

    with contextlib.closing(open_session(releases, as_of=as_of)) as opened:
        tools(opened, ClaimFile(claims)).run("stdio")


@cli.command()
@click.argument("report", type=FILE)
@click.option(
    "--release", "releases", type=FILE, multiple=True, help="release that was asked; may be repeated"
)
@click.option(
    "--claims", type=FILE, default="claims.jsonl", show_default=True, help="file that `dpsql mcp` made"
)
@click.option("--allow-unclaimed", is_flag=True, help="accept numbers without a claim")
@as_of
@signed
@tells
def check(
    report: Path, releases: tuple[Path, ...], claims: Path, allow_unclaimed: bool, as_of: str | None
) -> CommandOutput:
    """Look up every number of REPORT that was quoted from `dpsql mcp`; exit code 3 if one is not right.

    Wrong: differs from the release. Stale: from another release. Invented: never returned by a query. Unclaimed: has
    no claim.
    """
    from dpsql.federation.session import opened
    from dpsql.interfaces.agents import ClaimFile, check_report, read_text

    asked = opened(list(releases) or None, as_of)
    with Request(math.inf).working():
        quotes = check_report(read_text(report), ClaimFile(claims).statements(), asked)
    accepted = {"right", "unclaimed"} if allow_unclaimed else {"right"}
    faults = [quote for quote in quotes if quote.verdict not in accepted]
    lines = [f"{report}:{quote.line}: {quote.text} is {quote.verdict}: {quote.why}" for quote in faults]
    right = sum(quote.verdict == "right" for quote in quotes)
    told = "\n".join([*lines, f"{right} of {len(quotes)} numbers are right"])
    value = {"numbers": len(quotes), "right": right, "faults": [quote._asdict() for quote in faults]}
    return CommandOutput(value, told, result=True, code=3 if faults else 0)


def _read_config(context: click.Context, option: click.Parameter, file: Path | None) -> None:
    """Let a file say what options are not given otherwise."""
    if file is not None:
        from dpsql.interfaces.pgwire import read_config

        context.default_map = read_config(file) | {"config": file}


def _address(context: click.Context, option: click.Parameter, written: str | None) -> tuple[str, int] | None:
    """HOST:PORT of --metrics."""
    if written is None:
        return None
    host, colon, port = written.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter("write HOST:PORT, such as 127.0.0.1:9187")
    return host.strip("[]"), int(port)


@cli.command()
@click.argument("releases", type=FILE, nargs=-1)
@click.option(
    "--config", type=FILE, is_eager=True, expose_value=False, callback=_read_config,
    help="YAML: these options, and `releases`; options given here take precedence",
)  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", type=PORT, default=5433, show_default=True, help="0 takes a free one")
@click.option("--roles", type=FILE, help="YAML: who may ask which releases, instead of RELEASES")
@click.option("--password-file", type=FILE, help="one line user:password; readable by you alone")
@click.option("--tls-certificate", "certificate", type=FILE, help="PEM file")
@click.option("--tls-key", "key", type=FILE, help="PEM file")
@click.option(
    "--connections", type=click.IntRange(1, 100_000), default=800, show_default=True,
    help="logged-in clients at a time, per process",
)  # fmt: skip
@click.option(
    "--idle-timeout", "idle", type=SECONDS, default=3600, show_default=True, help="seconds; 0 for none"
)
@click.option(
    "--login-timeout", "login", type=click.FloatRange(0.1), default=10, show_default=True,
    help="seconds to complete a login",
)  # fmt: skip
@click.option(
    "--memory", type=click.IntRange(1),
    help="MB for all answers computed, kept and sent, over all processes; default: 250 per core",
)  # fmt: skip
@click.option("--log", type=FILE, help="file to add a line for each login to; else standard error")
@click.option("--log-statements", is_flag=True, help="a line for each statement too, without its text")
@click.option(
    "--metrics", callback=_address, metavar="HOST:PORT",
    help="answer /metrics (Prometheus) and /healthz there; of several processes each takes the next port",
)  # fmt: skip
@click.option(
    "--processes", type=click.IntRange(1, 64), default=1, show_default=True, help="one uses one core"
)
@as_of
@rule
@signed
@click.option("--together", "siblings", type=FILE, hidden=True)
@click.option("--socket", "clients_socket", type=int, hidden=True)
@click.option("--metrics-socket", type=int, hidden=True)
@click.option("--json", "as_json", is_flag=True, help="print the listening address as JSON")
@click.pass_context
def serve(
    context: click.Context, /, releases: tuple[Path, ...], processes: int, as_of: str | None, as_json: bool,
    **where: Any,
) -> None:  # fmt: skip
    """Serve RELEASES (files or streams) read-only to psql, JDBC and every PostgreSQL driver, until interrupted.

    Only this machine can connect, unless TLS and a password are given. SIGHUP, or a change of a release, a password
    or the file of roles, lets who connects from then on meet what they hold now.
    """
    from dpsql.federation.session import open_session
    from dpsql.interfaces import pgwire
    from dpsql.interfaces.pgwire.events import event_log
    from dpsql.interfaces.pgwire.login import Options
    from dpsql.interfaces.pgwire.roles import open_roles

    if as_json:
        wants_json()

    def announce(address: str, number: int) -> None:
        value = {"host": address, "port": number}
        click.echo(
            as_object(value, indent=None) if as_json else f"listening on {address}:{number}", err=not as_json
        )

    releases = releases or tuple(map(Path, (context.default_map or {}).get("releases", ())))
    memory = max(1, (where.pop("memory") or MEMORY_A_CORE * (os.cpu_count() or 1)) // processes)
    options = Options(**where, memory=memory * 1_000_000)
    _, warning = pgwire.check(options)
    guests = pgwire.read_guests(options, releases)
    with open_roles(guests, lambda paths: open_session(paths, as_of=as_of)) as roles:
        if options.siblings or (processes == 1 and context.default_map is None):
            pgwire.serve(roles, options, announce)
            return
    if warning:
        click.echo(warning, err=True)
    files: set[Path] = {context.default_map["config"]} if context.default_map else set()

    def read_files() -> list[Path]:
        with contextlib.suppress(Error):  # a file that is not right is looked at until it is
            for guest in pgwire.read_guests(options, releases):
                files.update(path for path in (*guest.releases, guest.password_file, options.roles) if path)
        return sorted(files)

    address = (options.host, options.port)
    with (
        pgwire.shared_sockets(address, options.metrics, processes) as held,
        event_log(options.log) as log,
    ):
        port = held[0][0].getsockname()[1]
        command = [sys.executable, "-m", "dpsql", "serve", *sys.argv[sys.argv.index("serve") + 1 :]]
        pgwire.supervise([*command, "--json"], held, read_files, log, lambda: announce(options.host, port))


@cli.command()
@click.argument("release", type=FILE)
@signed
@tells
def verify(release: Path) -> CommandOutput:
    """Read the whole file RELEASE (of a stream, its newest state): signature, structure, trees, models, all numbers.

    Says who signed it. Whether what it holds follows from its noisy integers, and what it cost, is for `dpsql audit`.
    """
    report = api.verify(release)
    return CommandOutput(report.to_json(), report.summary(), result=True)


NEEDED = (
    "duckdb",
    "sqlglot",
    "numpy",
    "pydantic",
    "PyYAML",
    "click",
    "rich",
    "prompt_toolkit",
    "threadpoolctl",
)

SystemCheck = tuple[str, bool, str]
"""One thing that was looked at: its name, whether it is fine, and what to do if not."""


@cli.command()
@click.argument("releases", type=FILE, nargs=-1)
@tells
def doctor(releases: tuple[Path, ...]) -> CommandOutput:
    """Check this installation, and RELEASES if any are named; exit code 2 if something is wrong."""
    versions = [(name, _version(name)) for name in NEEDED]
    findings: list[SystemCheck] = [
        ("python", sys.version_info >= (3, 11), platform.python_version()),
        *((name, bool(v), v or f"missing; pip install {name}") for name, v in versions), _engine(),
        ("entropy", len(os.urandom(32)) == 32, "the operating system's source answers"), *map(_release, releases),
    ]  # fmt: skip
    extras = {extra: _version(requirement.package) for extra, requirement in EXTRAS.items()}
    lines = [f"{'ok  ' if fine else 'BAD '} {what}: {detail}" for what, fine, detail in findings]
    lines += [f"     extra {name}: {version or _lacks(name)}" for name, version in extras.items()]
    report = [dict(zip(("what", "fine", "detail"), finding, strict=True)) for finding in findings]
    code = 0 if all(fine for _, fine, _ in findings) else 2
    return CommandOutput({"findings": report, "extras": extras}, "\n".join(lines), result=True, code=code)


def _lacks(name: str) -> str:
    """Features missing without an extra, and what to install.

    >>> _lacks("arrow")
    'not installed: for arrow(), pip install "dpsql[arrow]"'
    """
    return f'not installed: for {EXTRAS[name].serves}, pip install "dpsql[{name}]"'


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _engine() -> SystemCheck:
    """DuckDB answers and stays locked down."""
    from dpsql.release.read import LOCKDOWN

    try:
        with duckdb.connect(":memory:", config=dict(LOCKDOWN)) as connection:
            row = connection.execute("SELECT current_setting('enable_external_access')").fetchone()
    except duckdb.Error as error:
        return "lockdown", False, f"{type(error).__name__}; install duckdb >= 2.0"
    return "lockdown", row == (False,), "no files, no extensions" if row == (False,) else "not in force"


def _release(path: Path) -> SystemCheck:
    from dpsql.release import open_release

    try:
        release = open_release(path)
    except Error as error:
        return str(path), False, str(error)
    views = len({statistic.view for statistic in release.statistics})
    release.close()
    writable = path.stat().st_mode & 0o222
    note = ", but the file can be written; chmod 444" if writable else ""
    return str(path), not writable, f"release {release.name}, {views} views{note}"
