"""Does any interface show a number of fewer people than the rule of small numbers lets it? Random statements at six.

An answer is one statement at one interface. 10,000 answers take half an hour of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.figures import Figures, main
from dpsql.federation.session import open_session
from tests.interfaces.wire_client import Wire, running
from tests.property.small_numbers import Asked, ruled_shop, statements


def measure(figures: Figures, folder: Path, answers: int = 10_000) -> None:
    """Ask for so many answers."""
    release = ruled_shop(folder)
    with running(release) as server:
        wire = Wire(server.port)
        wire.until_ready()
        asked, made, refused = Asked(open_session([release]), wire), 0, 0
        faults: list[str] = []
        for statement in statements(61):
            if made >= answers:
                break
            by_interface = asked.faults(statement)
            made, refused = made + len(by_interface), refused + (not by_interface)
            for interface, lines in by_interface.items():
                faults += [f"{interface}: {line}" for line in lines]
            if made % 600 == 0:
                print(f"{made} answers, {len(faults)} wrong", flush=True)
    for line in faults[:20]:
        print(line, file=sys.stderr)
    figures.table("small numbers: answers", made)
    figures.table("small numbers: statements refused", refused)
    figures.at_most("small numbers: wrong answers of random statements over six interfaces", len(faults), 0)


if __name__ == "__main__":
    main(measure)
