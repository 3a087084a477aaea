"""Names that say nothing: the counter finds its plants, and the package has few; what a rename may change."""

from __future__ import annotations

import ast

import pytest

from tests.house import public_names, words
from tests.house.same_tree import skeleton
from tests.house.source import ROOT, Module, Package, read_package

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
    assert words.share(read_package(ROOT / "dpsql")) <= 0.02


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
    assert len(words.repeated_classes(read_package(ROOT / "dpsql"))) <= 20
