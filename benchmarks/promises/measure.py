"""What docs/privacy.md promises, measured on whole publishes: one figure for each promise, `ok` or `short`.

To add a promise, write a function that takes an empty folder and returns its figure, and give it a line in
`PROMISES`. To add a defect that must be found, see `tests/privacy/plant.py`.

    python -m benchmarks.promises.measure [words of the names to measure]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figures
from benchmarks.promises import ledger as promise_ledger
from benchmarks.promises import people as promise_people
from benchmarks.promises.answers import missed_defects, mostly_interpolated, no_numbers
from benchmarks.promises.sql import HOSTILE, TAKEN, UNPUBLISHABLE, hostile_taken, unpublishable, worst_source
from benchmarks.promises.stars import random_pair
from benchmarks.promises.streams import SEQUENCES, batches_told_apart, missed_stream_plants, units_over_cap
from dpsql.catalog import parse_catalog
from dpsql.errors import CatalogError
from tests.privacy.loss import measure
from tests.privacy.owned_stars import REFUSED
from tests.privacy.plant import is_found, planted
from tests.privacy.test_lineage import SAME

STARS = 300
PLANTS = planted()


class Promise(NamedTuple):
    """A figure that must not pass its bound.

    Args:
        name: what is measured, in words.
        bound: the most that it may be.
        measured: folder -> figure.
    """

    name: str
    bound: float
    measured: Callable[[Path], float]


def worst_star(folder: Path) -> float:
    """The largest loss over its claim: L1 / M under pure epsilon and equal budgets, mu^2 over mu^2 under a delta."""
    worst = 0.0
    for seed in range(STARS):
        pair = random_pair(seed)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            loss = measure(
                pair.catalog, pair.left, pair.right, Path(place) / "star", batches=pair.batches, seed=seed
            )
        if loss.share > 1:
            print(f"star {seed} ({pair.kind}): {loss.share:.6g} of the claim")
        worst = max(worst, loss.share)
    return worst


def missed_plants(folder: Path) -> float:
    """How many defects do not show once they are put back."""
    return float(sum(not is_found(plant, folder / str(i)) for i, plant in enumerate(PLANTS)))


def loaded(folder: Path) -> float:
    """How many catalogs load whose private rows have two owners, or are units and joined too."""
    return float(sum(_loads(case.catalog) for case in REFUSED.values()))


def _loads(catalog: str) -> bool:
    try:
        parse_catalog(catalog, "market.yaml")
    except CatalogError:
        return False
    return True


PROMISES = (
    Promise(f"worst L1/M of {STARS} random stars with aimed neighbours", 1.0, worst_star),
    Promise(f"worst L1/M of {len(TAKEN)} SQL sources that are taken", 1.0, worst_source),
    Promise(f"hostile SQL that is taken, of {HOSTILE}", 0.0, hostile_taken),
    Promise(f"catalogs that plan and cannot be published, of {UNPUBLISHABLE}", 0.0, unpublishable),
    Promise("taken labels that tell whether data are the same", 0.0, promise_ledger.labels_that_tell),
    Promise(f"fresh caps for one table, of {len(SAME)} spellings", 0.0, promise_ledger.fresh_caps),
    Promise(
        f"defects of the ledger not found, of {len(promise_ledger.DEFECTS)}",
        0.0,
        promise_ledger.missed_defects,
    ),
    Promise(
        f"answers about everybody that miss, a fifth of {promise_people.POPULATIONS} populations reporting",
        promise_people.ALLOWED,
        promise_people.missed,
    ),
    Promise("everybody: planted defects not found, of 1", 0.0, promise_people.missed_plant),
    Promise(f"planted defects not found, of {len(PLANTS)}", 0.0, missed_plants),
    Promise(f"streams with changing types: units over their cap, {SEQUENCES} sequences", 0.0, units_over_cap),
    Promise("streams: public batches told apart by output or exit code", 0.0, batches_told_apart),
    Promise("streams: planted defects not found, of 2", 0.0, missed_stream_plants),
    Promise(f"catalogs with shared or double owners that publish, of {len(REFUSED)}", 0.0, loaded),
    Promise(
        "answers more than half interpolated, or wrongly refused, of 1000 statements",
        0.0,
        mostly_interpolated,
    ),
    Promise("NaN or infinity in answers, errors and on the way, over random arithmetic", 0.0, no_numbers),
    Promise("defects of answers not found: refusals off, guards against NaN off", 0.0, missed_defects),
)


def main(words: list[str]) -> int:
    """Measure and print; 1 if any figure is short."""
    figures = Figures()
    for promise in PROMISES:
        if all(word in promise.name for word in words):
            with tempfile.TemporaryDirectory() as folder:
                broken = promise.measured(Path(folder)) - promise.bound
                figures.at_most("promises, how far past its bound", broken, 0, promise.name)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
