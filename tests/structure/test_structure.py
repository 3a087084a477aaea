"""What `make structure` counts, on packages of a few lines; each figure of this package is within its bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure import bounds, graph, reach
from tests.structure.source import Package, read_package, the_package

PROJECT = '[project]\nname = "dpsql"\n[project.scripts]\ndpsql = "dpsql.interface:main"\n'


def package(folder: Path, **modules: str) -> Package:
    (folder / "dpsql").mkdir(exist_ok=True)
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "README.md").write_text("")
    (folder / "pyproject.toml").write_text(PROJECT)
    for name, text in {"__init__": "", **modules}.items():
        (folder / "dpsql" / f"{name}.py").write_text(text)
    return read_package(folder / "dpsql")


def test_imports_in_functions_and_for_types_close_a_cycle_too(tmp_path: Path) -> None:
    a = "from dpsql.b import x\n"
    loop = ["dpsql.a, dpsql.b, dpsql.c"]
    assert graph.cycles(package(tmp_path, a=a, b="from dpsql import c\n", c="import dpsql.a\n")) == loop
    for late in (
        "def f():\n    import dpsql.a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import dpsql.a\n",
    ):
        assert graph.cycles(package(tmp_path, a=a, b="from dpsql import c\n", c=late)) == loop
    assert graph.cycles(package(tmp_path, a=a, b="from dpsql import c\n", c="import json\n")) == []


def test_lines_of_code_leave_texts_out_and_parameters_leave_self_out(tmp_path: Path) -> None:
    text = '"""Says."""\n\n# Why.\nclass A:\n    """Says\n    more."""\n'
    text += '    def f(self, a, b, c, *, d, e, f):\n        """Says."""\n        return """two\nlines"""\n'
    found = package(tmp_path, a=text)
    assert (len(bounds.total_lines(found)), bounds.many_parameters(found)) == (4, [])
    assert bounds.one_statement(found) == ["dpsql/a.py:7 f"]
    many = package(tmp_path, a=text.replace("e, f)", "e, f, **more)"))
    assert bounds.many_parameters(many) == ["dpsql/a.py:7 f: 7"]


def test_long_modules_and_names_that_occur_twice_are_listed(tmp_path: Path) -> None:
    found = package(tmp_path, a="x = 1\n" * 600, b="x = 1\n" * 601)
    assert bounds.long_modules(found) == ["dpsql.b: 601 lines"]
    for folder in ("part", "part/one", "part/two"):
        (tmp_path / "dpsql" / folder).mkdir()
        (tmp_path / "dpsql" / folder / "__init__.py").write_text("")
    for file in ("part/plan", "part/one/rows", "part/one/plan", "a"):
        (tmp_path / "dpsql" / f"{file}.py").write_text("class A:\n    pass\n")
    found = read_package(tmp_path / "dpsql")
    assert bounds.repeated_modules(found) == ["dpsql.part.one.plan, dpsql.part.plan"]
    assert bounds.repeated_classes(found) == ["A"] and len(bounds.classes(found)) == 4


def test_value_classes_that_one_place_builds_and_docstrings_that_ask_are_listed(tmp_path: Path) -> None:
    text = "from typing import NamedTuple\n@dataclass\nclass Once:\n    a: int\nclass Twice(NamedTuple):\n    a: int\n"
    text += 'class Plain:\n    """Whether so."""\n'
    text += 'def f():\n    """What, then."""\n    return Once(1), Twice(1), Plain()\n'
    found = package(tmp_path, a=text, b="import dpsql.a\nx = dpsql.a.Twice(1)\ndef g():\n    'Whatever.'\n")
    assert bounds.value_classes(found) == ["dpsql/a.py:3 Once"]
    assert sorted(line.split()[1] for line in bounds.question_words(found)) == ["What,", "Whether"]


def test_what_no_entry_point_reaches_is_listed(tmp_path: Path) -> None:
    interface = "from dpsql.inner import used\nfrom dpsql.made import Made\n"
    interface += "def main():\n    used()\n    return Made().told()\n"
    inner = "LIMIT = 3\nUNUSED = 4\ndef used(): return LIMIT\n"
    inner += "def dead(): return deeper()\ndef deeper(): return UNUSED, dead\n"
    made = "class Made:\n    def told(self): return self._own()\n"
    made += "    def _own(self): ...\n    def dead_too(self): ...\n"
    (tmp_path / "README.md").write_text("")
    (tmp_path / "pyproject.toml").write_text("")
    found = reach.unreached(package(tmp_path, interface=interface, inner=inner, made=made), tmp_path)
    assert [line.split()[1] for line in found] == [
        "dpsql.inner.UNUSED", "dpsql.inner.dead", "dpsql.inner.deeper", "dpsql.made.Made.dead_too"
    ]  # fmt: skip


@pytest.mark.long
def test_sizes_are_within_bounds() -> None:
    assert bounds.RULES.keys() == bounds.BOUNDS.keys()
    assert [name for name, bound in bounds.BOUNDS.items() if bound.most < bound.bound] == []
    measured = {name: len(rule(the_package())) for name, rule in bounds.RULES.items()}
    assert {name: value for name, value in measured.items() if value > bounds.BOUNDS[name].most} == {}
    project = {name: measure() for name, (measure, _) in bounds.PROJECT.items()}
    assert {name: value for name, value in project.items() if value > bounds.PROJECT[name][1].most} == {}
