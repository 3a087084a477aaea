"""What tests are made of: README.md names every folder and shared module, and what they import exists."""

from __future__ import annotations

import ast
import functools
import importlib
from importlib.util import find_spec

from tests.house.source import ROOT

TESTS = ROOT / "tests"
README = (TESTS / "README.md").read_text("utf-8")


def test_every_folder_is_explained() -> None:
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {name for name in folders if f"`tests/{name}`" not in README} == set()


def test_every_shared_module_is_explained() -> None:
    shared = {path.name for path in TESTS.glob("*.py")} - {"__init__.py"}
    assert {name for name in shared if f"`tests/{name}`" not in README} == set()


def test_names_that_tests_and_benchmarks_import_exist() -> None:
    """A renamed function is missed here at once, and not by the one long run that imports every file."""
    missing = []
    for folder in ("tests", "benchmarks", "docs", "examples"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "dpsql":
                    missing += [
                        f"{file.relative_to(ROOT)}:{node.lineno} {node.module}.{alias.name}"
                        for alias in node.names
                        if not exists(str(node.module), alias.name)
                    ]
    assert missing == []


@functools.cache
def exists(module: str, name: str) -> bool:
    """Whether a module of the package binds a name, or has a module of that name."""
    try:
        return hasattr(importlib.import_module(module), name) or bool(find_spec(f"{module}.{name}"))
    except ModuleNotFoundError as error:
        return not str(error.name).startswith("dpsql")  # a library that is not installed


def test_a_name_that_is_gone_is_missed() -> None:
    assert exists("dpsql.tree", "kary_tree") and exists("dpsql.star", "model")
    assert not exists("dpsql.tree", "binary") and not exists("dpsql.trees", "kary_tree")
