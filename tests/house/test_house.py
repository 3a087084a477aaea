"""What `make structure` counts, on packages of a few lines: each rule finds its plant, and nothing beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.house import graph, reach, replay, shapes, tags, traced, values
from tests.house.source import Package, read_package, the_package

PROJECT = '[project]\nname = "dpsql"\n[project.scripts]\ndpsql = "dpsql.door:main"\n'


def package(folder: Path, **modules: str) -> Package:
    (folder / "dpsql").mkdir(exist_ok=True)
    (folder / "docs").mkdir(exist_ok=True)
    (folder / "README.md").write_text("")
    (folder / "pyproject.toml").write_text(PROJECT)
    for name, text in {"__init__": "", **modules}.items():
        (folder / "dpsql" / f"{name}.py").write_text(text)
    return read_package(folder / "dpsql")


def rules(found: list[tags.Found]) -> list[tuple[str, str]]:
    return [(entry.rule, entry.tag) for entry in found]


def test_comparisons_of_a_tag_with_a_literal_count_and_others_do_not(tmp_path: Path) -> None:
    text = """
from typing import Literal
late: Literal["batch", "drop"]
TREE = "tree"
def ask(s, late, word):
    a = s.kind == "tree" or s["norm"] in (1, 2) or s.kind == TREE or s.get("kind") != "sine"
    b = late == "drop" or s.joint is None or (1 if s.residual else 2)
    return a, b, late == word, s.kind == word, s.column == "tree", s.late == "never a value of it"
"""
    found = rules(tags.questions(package(tmp_path, asks=text)))
    assert sorted(found) == sorted(
        [("comparison", "kind")] * 3 + [("comparison", "norm"), ("comparison", "late"), ("comparison", "joint")]
        + [("flag", "residual")]
    )  # fmt: skip


def test_words_of_other_languages_and_look_ups_in_tables_do_not_count(tmp_path: Path) -> None:
    text = """
from typing import Literal
type: Literal["int", "date"]
TABLE = {"tree": len}
WORDS = frozenset({"tree", "DATE"})
def ask(kind, word):
    return kind == "DATE", kind == "INNER", kind == "date", kind in TABLE, kind in WORDS
"""
    (found,) = tags.questions(package(tmp_path, asks=text))
    assert found.text == "kind in WORDS"  # for its "tree"


def test_a_variant_may_ask_for_itself_and_nobody_else_may(tmp_path: Path) -> None:
    tree = 'class Tree:\n    kind = "tree"\ndef own(s): return s.kind == "tree"\n'
    sine = 'class Sine:\n    kind = "sine"\ndef other(s): return s.kind == "tree"\n'
    found = tags.questions(package(tmp_path, tree=tree, sine=sine))
    assert [(entry.place, entry.tag) for entry in found] == [("dpsql/sine.py:3", "kind")]


def test_isinstance_and_cases_on_what_implements_a_protocol_count(tmp_path: Path) -> None:
    text = """
from typing import Protocol
class Law(Protocol):
    def draw(self): ...
    def loss(self): ...
"""
    laplace = "class Laplace:\n    def draw(self): ...\n    def loss(self): ...\n"
    laplace += "class Other:\n    def draw(self): ...\n"
    asks = """
def ask(x):
    match x:
        case Laplace(): return 1
    return isinstance(x, Laplace), isinstance(x, (Other, str))
"""
    found = rules(tags.questions(package(tmp_path, law=text, laplace=laplace, asks=asks)))
    assert sorted(found) == [("case", "Laplace"), ("isinstance", "Laplace")]


def test_a_dictionary_keyed_by_two_values_of_a_tag_counts(tmp_path: Path) -> None:
    text = 'from typing import Literal\nlate: Literal["batch", "drop"]\n'
    text += 'A = {"batch": 1, "drop": 2}\nB = {"batch": 1, "x": 2}\n'
    assert rules(tags.questions(package(tmp_path, asks=text))) == [("dictionary", "late")]


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
    assert (shapes.code_lines(found), shapes.many_parameters(found)) == (4, [])
    many = package(tmp_path, a=text.replace("e, f)", "e, f, **more)"))
    assert shapes.many_parameters(many) == ["dpsql/a.py:7 f: 7"]


def test_long_modules_and_names_that_occur_twice_are_listed(tmp_path: Path) -> None:
    found = package(tmp_path, a="x = 1\n" * 600, b="x = 1\n" * 601)
    assert shapes.long_modules(found) == ["dpsql.b: 601 lines"]
    for folder in ("room", "room/one", "room/two"):
        (tmp_path / "dpsql" / folder).mkdir()
        (tmp_path / "dpsql" / folder / "__init__.py").write_text("")
    for file in ("room/plan", "room/one/rows", "room/one/plan", "a"):
        (tmp_path / "dpsql" / f"{file}.py").write_text("")
    found = read_package(tmp_path / "dpsql")
    assert shapes.repeated_modules(found) == ["dpsql.room.one.plan, dpsql.room.plan"]


def test_value_classes_count_that_one_place_builds_and_no_other_module_names(tmp_path: Path) -> None:
    head = "from typing import NamedTuple, Protocol\n"
    text = (
        head
        + """
from typing import TypeAlias
class Law(Protocol):
    name: str
    def draw(self): ...
class Pair(NamedTuple):
    a: int
class Twice(NamedTuple):
    a: int
class Named(NamedTuple):
    a: int
class Member(NamedTuple):
    a: int
class Quoted(NamedTuple):
    a: int
class Plain:
    a: int
class Laplace(NamedTuple):
    a: int
    name = "laplace"
    def draw(self): ...
Either = Member | int
Text: TypeAlias = "Quoted | int"
def f(): return Pair(1), Twice(1), Twice(2), Named(1), Member(1), Quoted(1), Plain(), Laplace(1)
def g(pair: Pair): ...
"""
    )
    user = "import dpsql.made as m\nfrom dpsql import made\nfrom dpsql.made import Named\n"
    user += "def f(a: Named, b: made.Either, c: made.Text): ...\n"
    found = values.idle_values(package(tmp_path, made=text, user=user))
    assert [line.split()[1] for line in found] == ["Pair:"]
    assert [line.split()[1] for line in values.idle_values(package(tmp_path, made=text, user="x = 1\n"))] == [
        "Member:",
        "Named:",
        "Pair:",
        "Quoted:",
    ]


def test_what_no_door_reaches_is_listed(tmp_path: Path) -> None:
    door = "from dpsql.inner import used\nfrom dpsql.made import Made\n"
    door += "def main():\n    used()\n    return Made().told()\n"
    inner = "LIMIT = 3\nUNUSED = 4\ndef used(): return LIMIT\n"
    inner += "def dead(): return deeper()\ndef deeper(): return UNUSED\n"
    made = "class Made:\n    def told(self): return self._own()\n"
    made += "    def _own(self): ...\n    def dead_too(self): ...\n"
    found = reach.unreached(package(tmp_path, door=door, inner=inner, made=made), tmp_path)
    assert [line.split()[1] for line in found] == [
        "dpsql.inner.UNUSED", "dpsql.inner.dead", "dpsql.inner.deeper", "dpsql.made.Made.dead_too"
    ]  # fmt: skip


def test_a_call_upwards_is_seen_and_a_callback_is_not() -> None:
    below: dict[str, object] = {"__name__": "dpsql.tree"}
    above: dict[str, object] = {"__name__": "dpsql.doors.cli.analyst"}
    exec("class Thing:\n    def told(self): return 1\ndef callback(): return 1\n", above)
    exec("def ask(thing): return thing.told()\ndef run(step): return step()\n", below)
    storeys = traced.storeys_of(traced.Path(__file__).parents[2] / ".importlinter")
    seen: traced.Counter[tuple[str, str]] = traced.Counter()
    sys.setprofile(lambda frame, event, _: traced._note(frame, storeys, seen) if event == "call" else None)
    try:
        below["run"](above["callback"])  # type: ignore[operator]
        below["ask"](above["Thing"]())  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    assert list(seen) == [("dpsql.tree.ask", "dpsql.doors.cli.analyst.Thing.told")]


@pytest.mark.long
def test_no_two_modules_of_the_answering_side_import_each_other() -> None:
    found = graph.cycles(the_package())
    assert [group for group in found if "dpsql.answer" in group] == []


def test_members_of_a_protocol_are_counted_with_what_it_inherits(tmp_path: Path) -> None:
    text = """
from typing import Protocol
class Named(Protocol):
    name: str
class Law(Named, Protocol):
    @property
    def norm(self): ...
    def draw(self): ...
class Laplace:
    def draw(self): ...
"""
    found = shapes.protocols(package(tmp_path, law=text))
    assert found == [(1, "dpsql/law.py:3 Named"), (3, "dpsql/law.py:5 Law")]


def test_places_that_make_a_class_are_counted(tmp_path: Path) -> None:
    made = package(tmp_path, a="x = StatisticMeta(1)\n", b="import c\nx = c.StatisticMeta(1)\ny = Meta(1)\n")
    assert shapes.constructions(made, "StatisticMeta") == ["dpsql/a.py:1", "dpsql/b.py:2"]
    house = the_package()
    assert len(shapes.constructions(house, "StatisticMeta")) == 1


def test_a_replay_touches_what_imports_or_names_the_family(tmp_path: Path) -> None:
    found = package(
        tmp_path,
        blocks="PEOPLE = 1\n",
        registry="from dpsql import blocks\n",
        model='WORDS = ("auto", "blocks")\n',
        plan="from dpsql.measures import PEOPLE\ndef asks(name): return name == PEOPLE\n",
        other="blocks = 3\ndef f(): return blocks\n",
    )
    family = replay.Replay(frozenset({"dpsql.blocks"}), frozenset({"blocks", "PEOPLE"}))
    assert replay.touched(found, family) == ["dpsql.model", "dpsql.plan", "dpsql.registry"]
