"""The process that the kill tests kill: publishes into a folder and notes every step that it reaches.

python publishing_child.py <folder> <label> <step at which it kills itself, or "none">
"""

from __future__ import annotations

import os
import signal
import sys
from fractions import Fraction
from pathlib import Path

from dpsql.ledger.identity import (
    Label,
    Lineage,
    Receipt,
    ReleaseSpend,
    SourceTable,
    SpendLine,
    new_release_id,
)
from dpsql.ledger.publish import Draft, Order, publish_file
from dpsql.scratch import scratch

EPSILON = Fraction(1, 10)
LINEAGE = Lineage("people", "row", "add_remove", Fraction(0), Fraction(100))
STEPS = (
    *("locked", "recovered", "checked", "reserved:charged", "reserved:recorded", "reserved:committed"),
    *("directory", "drawing", "built", "hashed", "sealed:charged", "sealed:recorded", "sealed:committed"),
    *("readable", "renamed"),
)
RESERVED, SEALED = STEPS.index("reserved:committed"), STEPS.index("sealed:committed")
INSIDE = STEPS[3:]  # from the reservation on there is something that a crash could leave behind


def publish(folder: Path, label: str, last_step: str) -> Receipt:
    """One publish; appends each step to <folder>/steps and may end in kill -9."""
    steps = os.open(folder / "steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def kill_point(step: str) -> None:
        step = step.replace(" ", "")
        os.write(steps, f"{label} {step}\n".encode())
        if step == last_step:
            os.kill(os.getpid(), signal.SIGKILL)

    def build(draft: Draft) -> None:
        with scratch(draft.file, draft=True) as release:
            release.execute("CREATE TABLE measurement AS SELECT random() AS value FROM range(20000)")
            release.execute("CREATE TABLE meta AS SELECT ? AS release_id", [draft.release_id])
            kill_point("drawing")
            release.execute("INSERT INTO measurement SELECT random() FROM range(200000)")

    try:
        return publish_file(
            folder / "ledger" / "ledger.duckdb",
            ReleaseSpend(
                LINEAGE, EPSILON, (SpendLine("view", EPSILON, "epsilon"),), (SourceTable("rows", ("rows",)),)
            ),
            Order(Label("people", label, "spec"), folder / f"{label}.dpsql", new_release_id(), build, dict),
            kill_point,
        )
    finally:
        os.close(steps)


if __name__ == "__main__":
    publish(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
