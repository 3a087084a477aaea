"""The process that the kill tests kill: publishes into a folder and notes every step that it reaches.

python publishing_child.py <folder> <label> <step at which it kills itself, or "none">
"""

from __future__ import annotations

import os
import signal
import sys
from fractions import Fraction
from pathlib import Path

import duckdb

from dpsql.ledger import (
    Label,
    Lineage,
    Order,
    Receipt,
    ReleaseSpend,
    SourceTable,
    SpendLine,
    new_release_id,
    publish_file,
)

EPSILON = Fraction(1, 10)
LINEAGE = Lineage("people", "row", "add_remove", Fraction(0), Fraction(100))
STEPS = (
    *("locked", "recovered", "checked", "intent", "directory", "drawing", "built", "hashed"),
    *("charged", "recorded", "committed", "readable", "renamed"),
)
INSIDE = STEPS[3:]  # from the intent on there is something that a crash could leave behind


def publish(folder: Path, label: str, last_step: str) -> Receipt:
    """One publish; appends each step to <folder>/steps and may end in kill -9."""
    release_id = new_release_id()
    steps = os.open(folder / "steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def kill_point(step: str) -> None:
        os.write(steps, f"{label} {release_id} {step}\n".encode())
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def build(path: Path) -> None:
        with duckdb.connect(str(path)) as release:
            release.execute("CREATE TABLE measurement AS SELECT random() AS value FROM range(20000)")
            release.execute("CREATE TABLE meta AS SELECT ? AS release_id", [release_id])
            kill_point("drawing")
            release.execute("INSERT INTO measurement SELECT random() FROM range(200000)")

    try:
        return publish_file(
            folder / "ledger" / "ledger.duckdb",
            ReleaseSpend(
                LINEAGE, (SpendLine("view", EPSILON, "epsilon"),), (SourceTable("rows", ("rows",)),)
            ),
            Order(Label("people", label, "spec"), folder / f"{label}.dpsql", release_id, build, dict),
            kill_point,
        )
    finally:
        os.close(steps)


if __name__ == "__main__":
    publish(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
