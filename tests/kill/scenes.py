"""Commands that spend, add or count, each with the folder it starts from and what must hold once it has been run again.

Every case of a scene lies at the same path: a ledger knows where its releases are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stdout
from fractions import Fraction
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.api import simulate, verify
from dpsql.interfaces.cli import main
from dpsql.ledger.store import budget_report, ledger_entries
from dpsql.streams.public import read_manifest
from tests.kill.commands import Call, Outcome, calls, forked
from tests.stream_shop import CATALOG, make_stream_shop

SEXES = "views:\n  sexes: {of: sales, axes: [customer.sex], measures: [count]}\n"
DAYS = "views:\n  days: {of: sales, axes: [sales.sold_on, customer.sex], measures: [count]}\n"
SURVEY = """
dpsql: 1
name: survey
privacy: {lineage: survey, cap: 2, unit: row, epsilon: 1}
SOURCE
collection: {epsilon: 2}
tables:
  answer: {role: fact, columns: {age: {type: int, lower: 0, upper: 7}, amount: {type: int, lower: 0, upper: 9}}}
views:
  ages: {of: answer, axes: [answer.age], measures: [count]}
"""
PEOPLE = 300


class Scene(NamedTuple):
    """One command.

    Args:
        name: what it is called in figures.
        make: fills the folder that it starts from.
        words: the command, from the folder.
        shown: what it makes.
        first, last: parts of the paths at whose first and last system call the command has something to lose.
        check: what must hold of the folder at the end; raises AssertionError.
    """

    name: str
    make: Callable[[Path], object]
    words: Callable[[Path], list[object]]
    shown: str
    first: str
    last: str
    check: Callable[[Path, dict[str, Any]], None]


def make_shop(folder: Path, views: str = SEXES, text: str = CATALOG) -> None:
    """Rows of a shop and a catalog, on a computer that remembers nothing of earlier scenes."""
    os.environ["DPSQL_STATE"] = str(folder.with_name(f"{folder.name}-state"))
    part = text[: text.index("views:" if views == DAYS else "stream:")]
    make_stream_shop(folder, customers=40, text=part + views)


def _keyed(folder: Path) -> None:
    """The shop with a column whose values nobody listed."""
    text = CATALOG.replace("delta: DELTA", "delta: 1e-6, key_delta: 4e-7")
    regions = "views:\n  regions: {of: sales, axes: [customer.region], measures: [count]}\n"
    listed = "[north, south, east, west], nullable: true, out_of_domain: drop"
    make_shop(folder, regions, text.replace(listed, "private, nullable: true"))


def _released(folder: Path) -> None:
    make_shop(folder)
    done(["publish", folder / "retail.yaml", "-o", folder / "a.dpsql"])


def _streaming(folder: Path) -> None:
    make_shop(folder, DAYS)
    done(append_words(folder, 1))


def append_words(folder: Path, day: int) -> list[object]:
    """The append of a day."""
    catalog = ["--catalog", folder / "retail.yaml"]
    return ["append", folder / "retail.dpsql", *catalog, "--batch", f"2025-01-{day:02d}"]


def _asked(folder: Path) -> None:
    import duckdb

    (folder / "survey.yaml").write_text(SURVEY.replace("SOURCE\n", ""))
    (folder / "raw.yaml").write_text(
        SURVEY.replace("SOURCE", "source: {kind: parquet, root: ., tables: {answer: answer.parquet}}")
    )
    duckdb.sql(f"SELECT i % 8 AS age, i % 10 AS amount FROM range({PEOPLE}) AS t(i)").write_parquet(
        str(folder / "answer.parquet")
    )
    simulate(folder / "raw.yaml", folder / "reports.parquet", folder / "plan.json", seed=1)


def done(words: list[object]) -> dict[str, Any]:
    """Run a command here; its report.

    Raises:
        AssertionError: it failed.
    """
    out = StringIO()
    with redirect_stdout(out):
        try:
            main([*map(str, words), "--json"])
        except SystemExit as left:
            assert not left.code, f"{words[0]} left with {left.code}"
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


def _charged(folder: Path, releases: int) -> None:
    (lineage,) = budget_report(folder / ".dpsql" / "ledger.duckdb").lineages
    assert lineage.spent == releases, f"spent {lineage.spent} on {releases} releases"
    assert len(lineage.entries) == releases and all(entry.present for entry in lineage.entries)


def _publishes(releases: int) -> Callable[[Path, dict[str, Any]], None]:
    def check(folder: Path, report: dict[str, Any]) -> None:
        assert Fraction(report["left"]) == 4 - releases
        _charged(folder, releases)
        verify(folder / "b.dpsql")

    return check


def _begun(folder: Path, report: dict[str, Any]) -> None:
    """One release is shown; what a kill ended once it had begun is charged beside it, and nothing else is."""
    (lineage,) = budget_report(folder / ".dpsql" / "ledger.duckdb").lineages
    states = [entry.state for entry in lineage.entries]
    assert states in (["sealed"], ["ended", "sealed"]), states
    rounds = sum(line.amount for line in lineage.entries[0].lines if line.delta)
    assert states == ["sealed"] or lineage.entries[0].cost in (rounds, lineage.entries[1].cost)
    assert abs(lineage.spent - sum(entry.cost for entry in lineage.entries)) < Fraction(1, 10**12)
    verify(folder / "b.dpsql")


def _appends(batches: int) -> Callable[[Path, dict[str, Any]], None]:
    def check(folder: Path, report: dict[str, Any]) -> None:
        assert report["batch"] == batches - 1
        _charged(folder, 1)
        assert read_manifest(folder / "retail.dpsql").batches == batches
        verify(folder / "retail.dpsql")

    return check


def _collects(folder: Path, report: dict[str, Any]) -> None:
    assert (report["reports"], report["accepted"]) == (PEOPLE, PEOPLE), report
    verify(folder / "b.dpsql")


def collect_words(folder: Path) -> list[object]:
    """The collection of a folder."""
    state = ["--state", folder / "state.duckdb"]
    return ["collect", folder / "plan.json", folder / "reports.parquet", "-o", folder / "b.dpsql", *state]


def _publish(folder: Path) -> list[object]:
    return ["publish", folder / "retail.yaml", "-o", folder / "b.dpsql"]


SCENES = (
    Scene("first publish", make_shop, _publish, "b.dpsql", ".draft", ".draft", _publishes(1)),
    Scene("publish", _released, _publish, "b.dpsql", ".draft", ".draft", _publishes(2)),
    Scene("keyed publish", _keyed, _publish, "b.dpsql", ".draft", ".draft", _begun),
    Scene("first append", lambda folder: make_shop(folder, DAYS), lambda folder: append_words(folder, 1),
          "retail.dpsql/manifest.json", ".stream", ".stream", _appends(1)),
    Scene("append", _streaming, lambda folder: append_words(folder, 2),
          "retail.dpsql/manifest.json", ".stream", ".stream", _appends(2)),
    Scene("collect", _asked, collect_words, "b.dpsql", "state.duckdb", "b.dpsql", _collects),
)  # fmt: skip


class Stage:
    """A scene's folder, put back to its beginning before each case. Nothing is opened in this process."""

    def __init__(self, scene: Scene, folder: Path) -> None:
        self.scene, self.folder, self.kept = scene, folder / "work", folder / "kept"
        self.folder.mkdir(parents=True)
        made = forked(lambda: scene.make(self.folder))
        assert made.code == 0, made.said
        shutil.copytree(self.folder, self.kept)
        self.words = [*scene.words(self.folder), "--json"]
        self.calls = calls(self.words, self.folder)
        inside = [
            i for i, call in enumerate(self.calls) if scene.first in call.line or scene.last in call.line
        ]
        self.first, self.last = inside[0], inside[-1]

    def reset(self) -> None:
        """Back to the beginning."""
        shutil.rmtree(self.folder)
        shutil.copytree(self.kept, self.folder)

    def inside(self, number: int, outcome: Outcome) -> bool:
        """Whether a command was hit while it had something to lose, at the call meant."""
        traced = [line for line in outcome.traced if f" {self.calls[number].name}(" in line]
        if not traced or not self.first <= number <= self.last or str(self.folder) not in traced[-1]:
            return False
        process = traced[-1].split()[0]  # what it starts ends too, and says so
        return not any(line.startswith(f"{process} ") and " exit_group(" in line for line in outcome.traced)

    def charged(self) -> str:
        """What the ledger holds of the release that the command makes: its state, nothing, or `unread`."""

        def look() -> None:
            entries = ledger_entries(self.folder / ".dpsql" / "ledger.duckdb")
            print("state", *(entry.state for entry in entries if Path(entry.target).name == self.scene.shown))

        outcome = forked(look)
        return "unread" if outcome.code else outcome.said.splitlines()[-1].removeprefix("state").strip()

    def finish(self) -> dict[str, Any]:
        """Run the command again and check the whole; its report, or what is wrong under `wrong`."""
        shown = self.folder / self.scene.shown
        before = hashlib.sha256(shown.read_bytes()).hexdigest() if shown.is_file() else ""

        def again() -> None:
            report = self._again(shown)
            self.scene.check(self.folder, report)
            left = [path.name for path in self.folder.rglob("*") if _is_left(path)]
            assert not left, f"left behind: {left}"
            print(json.dumps({"report": report}))

        outcome = forked(again)
        after = hashlib.sha256(shown.read_bytes()).hexdigest() if shown.is_file() else ""
        if outcome.code:
            return {"wrong": outcome.said}
        if before and self.scene.name.endswith("publish") and before != after:
            return {"wrong": "what was public has changed"}
        report: dict[str, Any] = json.loads(outcome.said.splitlines()[-1])["report"]
        return report

    def _again(self, shown: Path) -> dict[str, Any]:
        """What the command tells when it is run again; a collection is counted anew."""
        if self.scene.name == "collect" and shown.exists():
            verify(shown)
            shown.unlink()
        return done(self.scene.words(self.folder))

    def call(self, number: int) -> Call:
        """A system call of the undisturbed run."""
        return self.calls[number]


def _is_left(path: Path) -> bool:
    """Whether a path is of something that was begun."""
    return path.name.endswith((".draft", ".copy", ".new", ".wal", "-journal"))
