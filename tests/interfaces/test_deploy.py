"""Files of `deploy/`: what they name exists, and their server file is one that the server takes."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dpsql.interfaces.cli import all_commands
from dpsql.interfaces.pgwire import PARAMETERS, read_config
from dpsql.interfaces.pgwire.roles import RolesFile
from tests.structure.source import ROOT

DEPLOY = ROOT / "deploy"


def test_the_server_file_is_one_that_the_server_takes() -> None:
    options = read_config(DEPLOY / "server" / "server.yaml")
    names = {parameter.name for parameter in all_commands()["serve"].params}
    assert options.keys() - {"releases"} <= names and set(PARAMETERS.values()) <= names
    RolesFile.model_validate(yaml.safe_load((DEPLOY / "server" / "roles.yaml").read_text()))


def test_the_image_runs_as_nobody_special_and_writes_nothing() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    stages = [line for line in lines if line.startswith("FROM ")]
    assert len(stages) == 2 and "USER 10001" in lines[lines.index(stages[1]) :]
    (service,) = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].values()
    assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["volumes"][0].endswith(":ro")
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("dpsql*.service")), ids=lambda path: path.name)
def test_units_name_commands_and_options_that_there_are(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    line = parser["Service"]["ExecStart"]
    match = re.search(r"bin/dpsql (\w+)", line)
    assert match is not None
    shown = CliRunner().invoke(all_commands()[match[1]], ["--help"]).output
    for option in re.findall(r"--[\w-]+", line):
        assert option in shown
    assert parser["Service"]["NoNewPrivileges"] == "yes" and parser["Service"]["ProtectSystem"] == "strict"
