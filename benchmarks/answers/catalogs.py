"""Does every release answer what it offers? Random catalogs are published and asked, errors and formats included.

Nullable measures of every type, bounds by row, truncation, weight and `auto`, several views, cubes, people, public
dimensions, with a delta and without. Every generated example is asked, and aggregates over every axis
(`tests.property.catalogs`). Half an hour of one core for 300.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from itertools import count
from pathlib import Path

from benchmarks.figures import Figures, main
from tests.property.catalogs import faults, publish_random

STATEMENTS = 60


def measure(figures: Figures, catalogs: int = 300) -> None:
    """Publish and ask so many catalogs."""
    published = wrong = 0
    refused: Counter[str] = Counter()
    for seed in count(1000):
        if published == catalogs:
            break
        with tempfile.TemporaryDirectory(prefix="dpsql-catalogs-") as where:
            release = publish_random(Path(where), seed)
            if isinstance(release, str):
                refused[release.partition(": ")[2]] += 1
                continue
            published += 1
            for fault in faults(release, seed, STATEMENTS):
                wrong += 1
                print(f"seed {seed}: {fault}", file=sys.stderr)
    for reason, times in refused.most_common(5):
        print(f"refused {times} times: {reason}")
    figures.table(f"random catalogs published, of {catalogs}", published)
    figures.at_most("random catalogs: wrong or missing answers", wrong, 0)


if __name__ == "__main__":
    main(measure)
