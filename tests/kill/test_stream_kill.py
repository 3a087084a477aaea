"""Kill -9 at every step of an append, in a process of its own: nothing is lost, doubled, redrawn or changed.

This file is also the program that is killed: `python test_stream_kill.py DIRECTORY STATE LAST [STEP BATCH]`.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.continual.time_tree import NodeRead, tree_strategy
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.noise import ExactNoise, os_entropy
from dpsql.streams.append import Batch, Group, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from dpsql.streams.public import read_manifest, read_segments
from dpsql.tree import IntArray

sys.path.insert(0, str(Path(__file__).parents[2]))  # this file is the program that is killed, too

from tests.time_forms import create_stream

CELLS = 4
SPEC = StreamSpec(tree_strategy(LAPLACE, (1, 2, 4), (5, 3, 2)), (CELLS,), 1000)
STATISTICS = (StreamStatistic(LAPLACE, (AxisBudget(np.ones(CELLS, np.int64), 1),), Fraction(1), 1),)
STEPS = (
    "locked", "recovered", "checked", "drawing", "drawn", "committed", "segment written", "segment", "state",
    "manifest written", "manifest", "marked",
)  # fmt: skip
INSIDE = STEPS[2:]


def rows(batch: int) -> IntArray:
    """Exact counts, far apart compared with the noise, so that a lost or doubled batch shows."""
    return np.arange(CELLS, dtype=np.int64) * 1_000_000 + 10_000 * (batch + 1)


def die() -> None:
    """No clean-up of any kind."""
    os.kill(os.getpid(), signal.SIGKILL)


def work(directory: Path, private: Path, last: int, step: str, at: int) -> None:
    """Append up to batch `last`; die at `step` of batch `at`. Every step passed is told on standard output."""
    number, rename = -1, Path.replace

    def point(name: str) -> None:
        os.write(1, f"{name}\n".encode())
        if name == step and number == at:
            die()

    def watched(source: Path, target: Path) -> Path:
        point("manifest written" if Path(target).name == "manifest.json" else "segment written")
        return rename(source, target)

    Path.replace = watched  # type: ignore[method-assign, assignment]

    class Draw(StreamNoise):
        def node(self, group: Group, read: NodeRead, exacts: Sequence[IntArray]) -> list[IntArray]:
            drawn = super().node(group, read, exacts)
            point("drawing")
            return drawn

    draw = Draw(STATISTICS, ExactNoise(os_entropy()))

    number = at if step in ("locked", "recovered") else -1
    while True:
        with opened_stream(directory, private, SPEC, kill_point=point) as stream:
            number = stream.state.next_batch()
            if number > last:
                return
            content = rows(number)
            stream.append(Batch(number, content.tobytes(), (content,), (f"p{number}", "all")), draw)


class Victim:
    """A stream and what has been seen of it; `kill` runs the program once and checks what it left."""

    def __init__(self, folder: Path) -> None:
        self.directory, self.private = folder / "shop.dpsql", folder / "private" / "state"
        self.seen: dict[int, list[int]] = {}
        create_stream(self.directory, self.private, SPEC, release_id="kill", secret=os.urandom(32))

    def command(self, last: int, step: str = "", at: int = -1) -> list[str]:
        return [sys.executable, __file__, str(self.directory), str(self.private), str(last), step, str(at)]

    def kill(self, step: str, at: int) -> None:
        """Die at a step of a batch."""
        done = subprocess.run(self.command(at, step, at), capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        self.look()

    def kill_after(self, seconds: float) -> str:
        """Die after a while from the first append; returns the last step passed."""
        with subprocess.Popen(self.command(399), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(seconds)
            process.kill()
            passed = process.stdout.read().decode().split("\n")
        self.look()
        return passed[-2] if len(passed) > 1 else "locked"

    def finish(self, last: int) -> None:
        """Recover, append the rest and check the whole."""
        done = subprocess.run(self.command(last), capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        self.look()
        assert sorted(self.seen) == list(range(last + 1))
        self.check_sums(last)

    def look(self) -> None:
        """What was public stays as it was; what was decided is what becomes public."""
        public: dict[int, list[int]] = {}
        manifest = read_manifest(self.directory)
        found = read_segments(self.directory, manifest)
        for batch, values in zip(found["hi"], found["value"], strict=True):
            public.setdefault(int(batch) - 1, []).append(int(values))
        for batch, decided in self.seen.items():
            assert public.get(batch, decided) == decided, "a decided or published value has changed"
        self.seen |= public
        for batch, values in self.outbox().items():
            assert self.seen.setdefault(batch, values) == values
        people = self.query("SELECT max(batches) FROM contributor")[0][0] or 0
        assert people == self.query("SELECT count(*) FROM batch")[0][0]  # counted with the decision, once
        assert len(public) <= int(people)

    def outbox(self) -> dict[int, list[int]]:
        """Noised values that were decided and may not be public."""
        found: dict[int, list[int]] = {}
        for batch, noised in self.query("SELECT batch, noised FROM outbox ORDER BY id"):
            found.setdefault(int(batch), []).extend(np.frombuffer(noised, np.int64).tolist())
        return found

    def query(self, text: str) -> list[tuple]:  # type: ignore[type-arg]
        database = sqlite3.connect(self.private)
        try:
            return database.execute(text).fetchall()
        finally:
            database.close()

    def check_sums(self, last: int) -> None:
        """Every batch is in every node that covers it exactly once, and every node is there exactly once."""
        found = read_segments(self.directory, read_manifest(self.directory))
        exact = np.array([rows(batch) for batch in range(last + 1)])
        wanted = [
            (e.level, e.lo, e.hi, cell)
            for b in range(last + 1)
            for e in SPEC.strategy.emissions(b)
            for cell in range(CELLS)
        ]
        keys = list(zip(*(found[c].tolist() for c in ("level", "lo", "hi", "cell")), strict=True))
        assert keys == wanted
        sums = np.array([exact[lo:hi, cell].sum() for _, lo, hi, cell in wanted])
        noise = found["value"] - sums
        assert np.abs(noise).max() < 2000 and np.abs(noise).max() > 0


@pytest.mark.slow
def test_twenty_kills(tmp_path: Path) -> None:
    """Every step once, then nine more inside appends that close one, two and three levels."""
    victim = Victim(tmp_path)
    for at, step in enumerate(STEPS):
        victim.kill(step, at)
    for at, step in enumerate(INSIDE, start=len(STEPS)):
        victim.kill(step, at)
    victim.finish(len(STEPS) + len(INSIDE))


def test_killed_again_while_recovering(tmp_path: Path) -> None:
    """The recovery of a decided batch dies at each of its own steps; the values sent are still the stored ones."""
    victim = Victim(tmp_path)
    victim.kill("committed", 1)
    decided = victim.seen[1]
    for step in ("segment written", "segment", "manifest written", "manifest"):
        done = subprocess.run([*victim.command(1)[:4], "1", step, "-1"], capture_output=True, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        victim.look()
    victim.finish(3)
    assert victim.seen[1] == decided


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_every_step_at_nodes_of_every_level(tmp_path: Path, offset: int) -> None:
    victim = Victim(tmp_path)
    for turn, step in enumerate(STEPS):
        victim.kill(step, 4 * turn + offset)
    victim.finish(4 * len(STEPS))


@pytest.mark.slow
def test_fifty_random_kills(tmp_path: Path) -> None:
    """Six in ten of them land inside an append; the rest of the batches are appended at the end."""
    chance = random.Random(4)
    inside = 0
    for turn in range(10):
        victim = Victim(tmp_path / str(turn))
        for _ in range(5):
            inside += victim.kill_after(chance.uniform(0.0, 0.3)) in INSIDE
        victim.finish(max(victim.seen, default=0) + 3)
    assert inside >= 30


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5]))
