"""Names: public ones are as listed, and those that tests, pages and messages use exist."""

from __future__ import annotations

import ast
import functools
import importlib
import re
from importlib.util import find_spec

from tests.structure import public_names
from tests.structure.source import ROOT, the_package

PACKAGE, DOCS = ROOT / "dpsql", ROOT / "docs"


def test_names_that_leave_the_process_are_as_listed() -> None:
    assert public_names.changed() == []


def test_classes_of_the_vocabulary_exist() -> None:
    text = (DOCS / "notation.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1] for line in text.partition("| class | what it is |")[2].splitlines() if "|" in line
    ]
    listed = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row)}
    nodes = (node for module in the_package().modules for node in module.nodes)
    assert len(listed) >= 15 and listed <= {node.name for node in nodes if isinstance(node, ast.ClassDef)}


def test_messages_of_the_page_are_messages_of_the_package() -> None:
    """`..` stands for names and numbers; what lies between is found in the source."""
    source = re.sub(r'"\s*f?"', "", "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py")))
    quoted = re.findall(r"^\| `([^`]+)`", (DOCS / "limits.md").read_text("utf-8"), flags=re.M)
    parts = [part.strip() for message in quoted for part in message.split("..")]
    assert len(quoted) >= 14
    assert [part for part in parts if len(part) > 3 and part not in source] == []


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
    assert exists("dpsql.tree", "kary_tree") and exists("dpsql.catalog", "model")
    assert not exists("dpsql.tree", "binary") and not exists("dpsql.trees", "kary_tree")
