"""5,000 damaged conversations with `dpsql serve`: whole messages, typed errors, under a second of CPU each.

`tests.interfaces.frames` damages them; the default tests run the first 300.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures import Figures, main
from tests.interfaces.frames import KNOWN, Served, conversation
from tests.interfaces_release import build

FRAMES = 5000


def measure(figures: Figures, folder: Path) -> None:
    """What the server did not expect is a traceback here."""
    served, untyped, worst, states = Served(build(folder)), 0, 0.0, set[str]()
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


if __name__ == "__main__":
    main(measure)
