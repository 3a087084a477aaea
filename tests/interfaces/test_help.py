"""Every example of every `--help` is typed, on one shop that all of them share, and so is `--json` of every command.

It is one object of docs/output.schema.json, on success and on refusal.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("help"))


@pytest.fixture
def untouched(tmp_path: Path) -> Path:
    """A shop where no example was typed, with a memory of its own: some write what must not be there."""
    return written(tmp_path)


def written(folder: Path) -> Path:
    """The files that examples name, and the shop's release."""
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
    return folder


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


SCHEMA = json.loads((ROOT / "docs" / "output.schema.json").read_text())
TALKING = {"start", "shell", "mcp"}
"""Dialogues, and a protocol that is JSON already."""
STAYING = {"serve", "explore", "check"}
"""Run until they are stopped, or need what another one noted: their own tests read the object."""
KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "boolean": (bool,),
    "number": (int, float), "null": (type(None),),
}  # fmt: skip


def leaves(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """A command, or those below it, by the words that call them."""
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            yield from leaves(one, f"{name} {below}")
    else:
        yield name, command


LEAVES = {name: leaf for top, command in all_commands().items() for name, leaf in leaves(command, top)}


def fits(report: Any, schema: dict[str, Any], at: str = "") -> list[str]:
    """Where an object does not fit the part of JSON Schema that the file uses."""
    wrong = []
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(report, KINDS[kind]) for kind in types):
        wrong.append(f"{at}: no {types}")
    if "enum" in schema and report not in schema["enum"]:
        wrong.append(f"{at}: {report} is not listed")
    if "const" in schema and report != schema["const"]:
        wrong.append(f"{at}: {report} is another")
    wrong += [f"{at}: no key {key}" for key in schema.get("required", ()) if key not in report]
    for key, below in schema.get("properties", {}).items():
        if key in report:
            wrong += fits(report[key], below, f"{at}.{key}")
    for rule in schema.get("allOf", ()):
        if not fits(report, rule["if"]):
            wrong += fits(report, rule["then"], at)
    return wrong


def test_every_command_has_the_option_and_a_line_in_the_schema() -> None:
    with_option = {
        name for name, leaf in LEAVES.items() if any("--json" in option.opts for option in leaf.params)
    }
    assert with_option == LEAVES.keys() - TALKING
    listed = {name.partition(" ")[0] for name in with_option} | with_option
    assert set(SCHEMA["properties"]["command"]["enum"]) == listed
    ruled = {rule["if"]["properties"]["command"]["const"] for rule in SCHEMA["allOf"]}
    assert ruled == with_option


@pytest.mark.parametrize("dear", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_command_says_one_object_of_the_schema(dear: bool, untouched: Path) -> None:
    """By the first example of each; those of the curator are typed once more and charge nothing twice."""
    said = set()
    # `collect` reads what `simulate` writes
    for name, lines in sorted(EXAMPLES.items(), key=lambda example: example[0] == "collect"):
        if name in TALKING | STAYING or (name in DEAR) is not dear:
            continue
        done = dpsql_command(*shlex.split(lines[0])[1:], "--json", cwd=untouched)
        assert done.returncode == 0, f"{lines[0]}\n{done.stderr}"
        report = json.loads(done.stdout)
        assert fits(report, SCHEMA) == [], name
        assert report["code"] == 0 and "error" not in report
        said.add(report["command"])
    assert len(said) == (len(DEAR) if dear else len(EXAMPLES) - len(TALKING | STAYING | DEAR))


def test_what_does_not_fit_is_found() -> None:
    good = {"command": "report", "code": 0, "page": "report.html", "bytes": 5}
    assert fits(good, SCHEMA) == []
    for bad in (
        {"code": 0}, {"command": "nothing", "code": 0}, good | {"code": 7}, {"command": "report", "code": 0},
        good | {"error": {"type": "X"}}, {"command": "explore", "code": 0, "url": 5},
    ):  # fmt: skip
        assert fits(bad, SCHEMA)


@pytest.mark.parametrize("name", sorted(LEAVES.keys() - TALKING))
def test_a_refusal_is_one_object_too(name: str, tmp_path: Path) -> None:
    """Of a file that is not there."""
    leaf, here = LEAVES[name], tmp_path / "gone.txt"
    here.write_text("17\n")
    words: list[str] = []
    for parameter in leaf.params:
        if isinstance(parameter, click.Argument) and parameter.required:
            words.append({"sql": "SELECT 1"}.get(str(parameter.name), "nothing"))
        elif parameter.required:
            given = {"epsilon": "0.5", "people": str(here)}
            words += [parameter.opts[0], given.get(str(parameter.name), "nothing")]
    done = dpsql_command(*name.split(), *words, "--json", cwd=tmp_path)
    if name == "doctor":
        return  # it needs no file
    report = json.loads(done.stdout)
    assert fits(report, SCHEMA) == []
    assert report["code"] == done.returncode != 0
    assert report["error"]["message"] in done.stderr and len(done.stderr.splitlines()) <= 2
