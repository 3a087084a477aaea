"""Every example of every `--help` is typed, on one small shop that all of them share."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import duckdb
import pytest

from dpsql.examples.retail import make_star, write_star
from dpsql.interfaces.cli import BEGIN, COMMANDS, EXAMPLES, all_commands
from tests.command import dpsql_command
from tests.stream_shop import CATALOG as DAYS

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
VIEWS = """views:
  trend: {of: sales, axes: [{axis: sales.sold_on, cuts: {width: month}}, customer.region], measures: [count]}
  ages: {of: sales, axes: [{axis: customer.age, cuts: [30, 45, 65]}], measures: [count]}
"""
SURVEY = (
    "collection: {epsilon: 4}\nviews: {who: {of: customer, axes: [customer.region], measures: [count]}}\n"
)
DAY = "views:\n  days: {of: sales, axes: [sales.sold_on, customer.sex], measures: [count]}\n"
STAY = {
    "explore": "tests/interfaces/test_explore.py",
    "serve": "tests/interfaces/test_wire.py",
    "mcp": "tests/interfaces/test_mcp.py",
    "check": "tests/interfaces/test_mcp.py",
    "start": "tests/interfaces/test_start.py",
}
"""Commands that stay until they are stopped, or ask, and who runs them."""
DEAR = {
    "init", "rehearse", "design", "audit", "certificate", "append", "forget", "simulate", "collect",
    "collection-plan"
}  # fmt: skip


def shown(command: click.Command) -> list[str]:
    """The examples that a command's help shows."""
    text = command.get_help(click.Context(command, info_name="dpsql"))
    return [
        line.strip().removeprefix("$ ") for line in text.splitlines() if line.strip().startswith("$ dpsql ")
    ]


LINES = [(name, line) for name, command in all_commands().items() for line in shown(command)]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The files that examples name, and the shop's release."""
    folder = tmp_path_factory.mktemp("help")
    write_star(folder / "data", make_star(7, 300, 40))
    text = (ROOT / "catalog" / "retail.yaml").read_text()
    head = text[: text.index("views:")].replace("name: retail", "name: shop")
    (folder / "shop.yaml").write_text(head + VIEWS)
    (folder / "wider.yaml").write_text(head.replace("name: shop", "name: wider") + VIEWS)
    (folder / "survey.yaml").write_text(head.replace("name: shop", "name: survey") + SURVEY)
    days = DAYS[: DAYS.index("views:")].replace("EPSILON", "1").replace("DELTA", "0")
    (folder / "days.yaml").write_text(days + DAY)
    day = f"SELECT * FROM '{folder}/data/sales.parquet' WHERE sold_on = DATE '2025-01-02'"
    duckdb.sql(f"COPY ({day}) TO '{folder}/day.parquet'")
    (folder / "questions.sql").write_text(
        "SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1;"
    )
    (folder / "gone.txt").write_text("17\n")
    for command in ("publish", "buy"):
        for line in EXAMPLES[command]:
            typed(line, folder)
    yield folder


def typed(line: str, folder: Path) -> str:
    """What an example prints.

    Raises:
        AssertionError: it fails.
    """
    done = dpsql_command(*shlex.split(line)[1:], cwd=folder)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def test_every_command_shows_its_examples() -> None:
    assert set(EXAMPLES) == set(all_commands())
    for name, command in all_commands().items():
        assert shown(command) == list(EXAMPLES[name]), "help wraps no line of an example"
        assert all(line.split()[1] == name for line in shown(command))
    assert all((ROOT / path).exists() for path in STAY.values())


def test_help_is_one_screen_and_names_every_command_in_one_line() -> None:
    command = [sys.executable, "-m", "dpsql", "--help"]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = done.stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert lines[-1] == BEGIN
    assert set(COMMANDS) == set(all_commands())
    for name, (_, summary, *_) in COMMANDS.items():
        assert len(summary) < 60
        assert [line.split(maxsplit=1) for line in lines].count([name, summary]) == 1


def test_help_loads_no_command() -> None:
    code = (
        "import sys; from dpsql.interfaces.cli import cli; cli.main(['--help'], standalone_mode=False); "
        "print({m for m in sys.modules if m.split('.')[0] in ('duckdb', 'numpy', 'sqlglot', 'pydantic')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.endswith("\nset()\n") and "  query  " in done.stdout


def cases() -> Iterator[object]:
    """Examples to type; those that take seconds are run by `make slow`."""
    for name, line in sorted(LINES, key=lambda example: example[0] == "collect"):  # after what it counts
        if name not in {"publish", "buy", *STAY}:
            marks = [pytest.mark.slow] if name in DEAR else []
            yield pytest.param(name, line, marks=marks, id=line[:60])


@pytest.mark.parametrize(("name", "line"), list(cases()))
def test_an_example_runs(shop: Path, name: str, line: str) -> None:
    if name == "collect" and not (shop / "made.json").exists():
        typed(EXAMPLES["simulate"][0], shop)
    if ("day.parquet" in line or name == "forget") and not (shop / "days.dpsql").exists():
        typed(EXAMPLES["append"][0], shop)
    assert typed(line, shop) or line == "dpsql shell shop.dpsql", "it says nothing"
