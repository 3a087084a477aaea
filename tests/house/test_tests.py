"""tests/README.md names every folder and every shared module of the tests."""

from __future__ import annotations

from tests.house.source import ROOT

TESTS = ROOT / "tests"
README = (TESTS / "README.md").read_text("utf-8")


def test_every_folder_is_explained() -> None:
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert {name for name in folders if f"`tests/{name}`" not in README} == set()


def test_every_shared_module_is_explained() -> None:
    shared = {path.name for path in TESTS.glob("*.py")} - {"__init__.py"}
    assert {name for name in shared if f"`tests/{name}`" not in README} == set()
