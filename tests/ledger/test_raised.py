"""An exit anywhere in the publish protocol: what was drawn is charged, no draft is left, and the next call ends it.

Kill tests end a process between steps; here an exception is raised between all statements of the protocol, and at each
kill point, so that the exit's own code runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from dpsql.errors import MachineFault
from dpsql.ledger import files, publish
from dpsql.ledger.identity import Receipt
from dpsql.ledger.publish import Draft
from dpsql.ledger.publish import Draft as PublishedDraft
from dpsql.ledger.store import EntryReport, Store, budget_report
from dpsql.scratch import MARK
from tests.ledger.test_ledger import KEYED, ROUNDS, VIEW, Curator
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

CHARGE = Fraction(1, 20)
PROTOCOL: tuple[CodeType, ...] = (
    publish.publish_file.__code__, publish._built.__code__, PublishedDraft.begin.__code__, PublishedDraft.step.__code__,
    Store.commit.__code__, Store.refresh.__code__, files.put.__code__,
)  # fmt: skip


class Stop(Exception):
    """An exception that nobody expects."""


class Scene:
    """One release on a ledger that has charged another; `drawn` is a record of the noise that was drawn."""

    def __init__(self, folder: Path, begins: bool) -> None:
        folder.mkdir()
        self.curator, self.begins = Curator(folder), begins
        self.drawn: list[str] = []

    def build(self, draft: Draft) -> None:
        if self.begins:
            draft.begin(keys=True)
            self.drawn.append("keys")
            draft.begin()
        self.drawn.append("view")
        draft.file.write_bytes(bytes(8) + MARK + os.urandom(40))

    def publish(self, kill_point: Callable[[str], None] = lambda step: None) -> Receipt:
        lines = (*(ROUNDS[:1] if self.begins else ()), VIEW)
        return self.curator.publish(
            "a", CHARGE, lineage=KEYED, currency="mu2", lines=lines, kill_point=kill_point,
            **{"build": None, "draw": self.build},
        )  # fmt: skip

    def entry(self) -> EntryReport | None:
        """How the label stands after an exit."""
        lineages = budget_report(self.curator.ledger).lineages
        return lineages[0].entries[0] if lineages else None

    def check(self) -> str:
        """What an exit has left; then the same call, and what it costs in all. Gives how the label stood."""
        entry, target = self.entry(), self.curator.folder / "a.dpsql"
        state = entry.state if entry else ""
        assert entry is not None or not self.drawn, "drawn and charged to nobody"
        assert not target.exists() or state == "sealed"
        for draft in self.curator.ledger.parent.glob("*.draft/*"):
            assert state == "sealed" and draft.read_bytes()[8:12] == MARK
        drafts = list(self.curator.ledger.parent.glob("*.draft"))
        assert state == "sealed" or not drafts
        assert not list(self.curator.folder.glob(".*.copy"))
        kept = Fraction(0)
        if state in ("ended", "begun keys", "begun"):
            # One that stays begun, since the exit came between commit and what follows it, is ended by the next call.
            assert entry is not None
            assert entry.cost == CHARGE
            kept = CHARGE
        assert state != "reserved" or "keys" not in self.drawn, "keys were drawn and can be drawn again"
        before = list(self.drawn)
        again = self.publish()
        assert again.drawn == (state != "sealed") == (self.drawn != before)
        assert target.read_bytes()[8:12] == b"DUCK" and self.curator.left_over() == []
        (lineage,) = budget_report(self.curator.ledger).lineages
        assert lineage.spent == CHARGE + kept and again.ended == (kept if again.drawn else 0)
        rounds = sum(line.delta for line in ROUNDS[:1]) if self.begins else 0
        assert lineage.key_spent == rounds * (2 if kept else 1)
        return state


def raising(stop: type[BaseException], at: int) -> tuple[list[int], Callable[[FrameType, str, Any], Any]]:
    """A trace that counts the lines of the protocol and raises before one of them; never where `at` is 0."""
    lines: list[int] = []

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines.append(frame.f_lineno)
            if len(lines) == at:
                raise stop
        return line

    def call(frame: FrameType, event: str, _: Any) -> Any:
        return line if frame.f_code in PROTOCOL else None

    return lines, call


def traced(scene: Scene, stop: type[BaseException], at: int) -> int:
    """Publish with an exception before the `at`-th line; how many lines ran."""
    lines, trace = raising(stop, at)
    own = sys.gettrace()
    sys.settrace(trace)
    try:
        scene.publish()
    except (stop, MachineFault):
        pass
    finally:
        sys.settrace(own)
    return len(lines)


def exits(folder: Path, begins: bool, stride: int) -> Iterator[str]:
    """How the label stood after an exit between two statements, for every `stride`-th statement."""
    whole = traced(Scene(folder / "whole", begins), Stop, 0)
    assert whole > 100
    for at in range(1, whole + 1, stride):
        scene = Scene(folder / str(at), begins)
        traced(scene, KeyboardInterrupt if at // stride % 2 else Stop, at)
        yield scene.check()


@pytest.mark.parametrize("begins", by_default([True, False], 1))
def test_an_exit_between_two_statements_is_charged_and_leaves_no_draft(tmp_path: Path, begins: bool) -> None:
    states = set(exits(tmp_path, begins, 11))
    assert states >= ({"", "ended", "sealed"} if begins else {"", "reserved", "sealed"})


@pytest.mark.slow
@pytest.mark.parametrize("begins", [False, True])
def test_an_exit_between_any_two_statements_is(tmp_path: Path, begins: bool) -> None:
    for state in exits(tmp_path, begins, 1):
        assert state in ("", "reserved", "begun keys", "begun", "ended", "sealed")


@pytest.mark.slow
@pytest.mark.parametrize("begins", by_default([True, False], 1))
def test_an_exit_at_every_kill_point_is(tmp_path: Path, begins: bool) -> None:
    steps: list[str] = []
    Scene(tmp_path / "whole", begins).publish(steps.append)
    assert len(steps) == len(set(steps)) > 12
    for number, step in enumerate(steps):
        stop = (KeyboardInterrupt, Stop, MemoryError)[number % 3]

        def point(reached: str, step: str = step, stop: type[BaseException] = stop) -> None:
            if reached == step:
                raise stop

        scene = Scene(tmp_path / str(number), begins)
        with pytest.raises((stop, MachineFault)):
            scene.publish(point)
        scene.check()
