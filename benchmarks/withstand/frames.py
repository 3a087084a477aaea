"""5,000 damaged conversations with `dpsql serve`: whole messages, typed errors, under a second of CPU each.

    python -m benchmarks.withstand.frames

`tests.interfaces.frames` damages them; the default tests run the first 300.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figures
from tests.interfaces.frames import KNOWN, Served, conversation
from tests.interfaces_release import build

FRAMES = 5000


def measure(folder: Path) -> int:
    """Print the figures; the exit code. What the server did not expect is a traceback here."""
    served, figures, untyped, worst, states = Served(build(folder)), Figures(), 0, 0.0, set[str]()
    for seed in range(FRAMES):
        outcome = served.hear(conversation(seed))
        untyped += not set(outcome.states) <= KNOWN
        worst = max(worst, outcome.cpu)
        states |= set(outcome.states)
    served.close()
    print(f"states seen: {', '.join(sorted(states))}")
    figures.table("frames: damaged conversations", FRAMES)
    figures.at_most("frames: untyped errors", untyped, 0)
    figures.table("frames: most seconds of CPU of one", worst)
    return figures.finish()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="dpsql-frames-") as where:
        sys.exit(measure(Path(where)))
