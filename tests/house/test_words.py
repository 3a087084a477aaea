"""Names that say nothing: the counter finds its plants, and the package has few; what a rename may change."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

import dpsql
from tests.house import public_names, words
from tests.house.same_tree import skeleton
from tests.house.source import ROOT, Module, Package, the_package

PLANTED = '''
def mean(found, weights):
    """Of them."""
    left, right = weights
    total = 0
    for each in found:
        total += [part for part in each if part]
    return total


def lonely(left):
    return left
'''


def test_pointers_are_parameters_targets_and_assignments() -> None:
    package = Package((Module("dpsql.plant", ROOT / "dpsql" / "plant.py", ast.parse(PLANTED)),))
    pointers = [binding.name for binding in words.bindings(package) if binding.pointer]
    assert sorted(pointers) == ["each", "found", "left", "part"], "left beside right is a side"


def test_the_package_points_at_little() -> None:
    assert words.share(the_package()) <= 0.02


@pytest.mark.parametrize(
    ("text", "same"),
    [
        (PLANTED.replace("found", "samples").replace('"""Of them."""', '"""Of samples."""'), True),
        (PLANTED.replace("total = 0", "total = 1"), False),
        (PLANTED.replace("if part", "if not part"), False),
        (PLANTED.replace("return left", "return"), False),
    ],
)
def test_a_rename_changes_identifiers_and_docstrings_alone(text: str, same: bool) -> None:
    assert (skeleton(text) == skeleton(PLANTED)) is same


def test_names_that_leave_the_process_are_as_listed() -> None:
    assert public_names.changed() == []


def test_a_class_has_one_name() -> None:
    assert len(words.repeated_classes(the_package())) <= 20


def test_public_names_have_docstrings() -> None:
    """What users call, and each function that another module may call; ruff asks for those of modules and classes."""
    exported = {name: getattr(dpsql, name) for name in dpsql.__all__}
    bare = [name for name, value in exported.items() if callable(value) and not inspect.getdoc(value)]
    for module in the_package().modules:
        for node in module.tree.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
                continue
            if not ast.get_docstring(node) and "overload" not in map(ast.unparse, node.decorator_list):
                bare.append(module.place(node))
    assert not bare


def test_no_docstring_points_to_another() -> None:
    """A method that implements a Protocol inherits its text; some stubs have no other body."""
    nodes = (node for module in the_package().modules for node in module.nodes)
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef) and len(node.body) > 1)
    assert not [f.name for f in functions if re.fullmatch(r"See `[\w.]+`\.?", ast.get_docstring(f) or "")]


def class_names() -> set[str]:
    modules = the_package().modules
    return {node.name for module in modules for node in module.nodes if isinstance(node, ast.ClassDef)}


def test_classes_of_the_vocabulary_exist() -> None:
    text = (ROOT / "docs" / "notation.md").read_text(encoding="utf-8")
    rows = [
        line.split("|")[1] for line in text.partition("| class | what it is |")[2].splitlines() if "|" in line
    ]
    listed = {name for row in rows for name in re.findall(r"`([A-Z]\w+)`", row)}
    assert len(listed) >= 15 and listed <= class_names()


SHUNNED = {"asked", "told", "held", "kept", "found", "own", "said", "drowned", "mine", "theirs"}
NAMED_BY_THE_CATALOG = {"AskedRows", "AskedVariance", "AskedReading"}
"""What `mechanism: asked` makes."""


def test_class_names_keep_the_vocabulary() -> None:
    shunned = {
        name for name in class_names() if SHUNNED & {word.lower() for word in re.findall("[A-Z][a-z]*", name)}
    }
    assert shunned == NAMED_BY_THE_CATALOG
