"""`--json` of every command: one object of docs/output.schema.json, on success and on refusal."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from dpsql.interfaces.cli import EXAMPLES, all_commands
from tests.command import dpsql_command
from tests.interfaces import test_help
from tests.interfaces.test_help import ROOT

pytestmark = pytest.mark.long

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


COMMANDS = {name: leaf for top, command in all_commands().items() for name, leaf in leaves(command, top)}


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
        name for name, leaf in COMMANDS.items() if any("--json" in option.opts for option in leaf.params)
    }
    assert with_option == COMMANDS.keys() - TALKING
    listed = {name.partition(" ")[0] for name in with_option} | with_option
    assert set(SCHEMA["properties"]["command"]["enum"]) == listed
    ruled = {rule["if"]["properties"]["command"]["const"] for rule in SCHEMA["allOf"]}
    assert ruled == with_option


shop = test_help.shop
"""The files that examples name."""


@pytest.mark.parametrize("dear", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_command_says_one_object_of_the_schema(dear: bool, shop: Path) -> None:
    """By the first example of each; those of the curator are typed once more and charge nothing twice."""
    said = set()
    # `collect` reads what `simulate` writes
    for name, lines in sorted(EXAMPLES.items(), key=lambda example: example[0] == "collect"):
        if name in TALKING | STAYING or (name in test_help.DEAR) is not dear:
            continue
        done = dpsql_command(*shlex.split(lines[0])[1:], "--json", cwd=shop)
        assert done.returncode == 0, f"{lines[0]}\n{done.stderr}"
        report = json.loads(done.stdout)
        assert fits(report, SCHEMA) == [], name
        assert report["code"] == 0 and "error" not in report
        said.add(report["command"])
    assert len(said) == (
        len(test_help.DEAR) if dear else len(EXAMPLES) - len(TALKING | STAYING | test_help.DEAR)
    )


def test_what_does_not_fit_is_found() -> None:
    good = {"command": "report", "code": 0, "page": "report.html", "bytes": 5}
    assert fits(good, SCHEMA) == []
    for bad in (
        {"code": 0}, {"command": "nothing", "code": 0}, good | {"code": 7}, {"command": "report", "code": 0},
        good | {"error": {"type": "X"}}, {"command": "explore", "code": 0, "url": 5},
    ):  # fmt: skip
        assert fits(bad, SCHEMA)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - TALKING))
def test_a_refusal_is_one_object_too(name: str, tmp_path: Path) -> None:
    """Of a file that is not there."""
    leaf, here = COMMANDS[name], tmp_path / "gone.txt"
    here.write_text("17\n")
    words: list[str] = []
    for parameter in leaf.params:
        if isinstance(parameter, click.Argument) and parameter.required:
            words.append({"shell": "bash", "sql": "SELECT 1"}.get(str(parameter.name), "nothing"))
        elif parameter.required:
            given = {"epsilon": "0.5", "people": str(here)}
            words += [parameter.opts[0], given.get(str(parameter.name), "nothing")]
    done = dpsql_command(*name.split(), *words, "--json", cwd=tmp_path)
    if name in ("completion", "doctor"):
        return  # they need no file
    report = json.loads(done.stdout)
    assert fits(report, SCHEMA) == []
    assert report["code"] == done.returncode != 0
    assert report["error"]["message"] in done.stderr and len(done.stderr.splitlines()) <= 2
