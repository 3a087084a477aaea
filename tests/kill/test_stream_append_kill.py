"""Whole appends killed between decision, segment, state and manifest: nothing is drawn again, no half state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.streams.public import read_manifest, read_segments
from tests.stream_shop import CATALOG, NOW, StreamShop, make_stream_shop

VIEWS = "views:\n  days: {of: sales, axes: [sales.sold_on, customer.sex], measures: [count]}\n"
STEPS = ("drawn", "committed", "segment", "state", "manifest")
REST = ("locked", "recovered", "checked", "marked")


def child(folder: str, label: str, step: str, seed: str) -> None:
    """Append one batch in this process and die at a step, without any clean-up."""
    from dpsql.catalog import load_catalog
    from dpsql.streams.publish import Arrival, Chance, append_batch

    def point(passed: str) -> None:
        if passed == step:
            os.kill(os.getpid(), signal.SIGKILL)

    shop = StreamShop(Path(folder), ExactNoise(insecure_test_entropy(int(seed))))
    append_batch(load_catalog(shop.catalog), shop.directory, Arrival(label, now=NOW),
                 Chance(shop.noise, insecure_test_entropy(1)), kill_point=point)  # fmt: skip


def killed(shop: StreamShop, day: int, step: str) -> None:
    root = Path(__file__).resolve().parents[2]
    arguments = [str(shop.folder), f"2025-01-{day + 1:02d}", step, str(100 + day)]
    command = [sys.executable, "-m", "tests.kill.test_stream_append_kill", *arguments]
    done = subprocess.run(command, cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL


def check(shop: StreamShop, steps: tuple[str, ...]) -> None:
    shop.append(0)
    for day, step in enumerate(steps, start=1):
        before: ReleaseEngine = shop.opened()
        killed(shop, day, step)
        decided = step not in ("locked", "recovered", "checked", "drawn")
        assert read_manifest(shop.directory).batches == day + (step in ("manifest", "marked"))
        assert shop.opened().query("SELECT COUNT(*) FROM sales").provenance["as_of_batch"] >= day - 1
        # recovers with other noise at hand, which must not be used for what was decided
        report = shop.append(day)
        assert report.added is not decided and report.charged == 0
        assert before.query("SELECT COUNT(*) FROM sales").provenance["as_of_batch"] == day - 1
        found = read_segments(shop.directory, read_manifest(shop.directory))
        assert sorted(set(found["hi"].tolist())) == list(range(1, day + 2))
        state = shop.opened().release
        stored = state.connection.execute("SELECT value FROM measurement_0 ORDER BY rowid").fetchnumpy()[
            "value"
        ]
        assert stored.tolist() == found["value"].tolist()
        assert not list(shop.directory.rglob("*.new"))


def shop_in(folder: Path) -> StreamShop:
    return make_stream_shop(folder, customers=60, text=CATALOG[: CATALOG.index("views:")] + VIEWS,
                            noise=ExactNoise(insecure_test_entropy(2)))  # fmt: skip


@pytest.mark.slow
def test_killed_at_every_step(tmp_path: Path) -> None:
    check(shop_in(tmp_path), STEPS + REST)


if __name__ == "__main__":
    child(*sys.argv[1:])
