"""Commands about the installation: doctor, completion."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path

import click
import duckdb

from dpsql.errors import Error
from dpsql.extras import EXTRAS
from dpsql.interfaces.cli import FILE, CommandOutput, cli, tells

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


@cli.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@tells
def completion(shell: str) -> CommandOutput:
    """Print the completion script of SHELL: eval "$(dpsql completion bash)"."""
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None  # click knows the three
    script = completion_class(cli, {}, "dpsql", "_DPSQL_COMPLETE").source()
    return CommandOutput({"script": script}, script, result=True)
