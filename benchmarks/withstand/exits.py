"""How publishes end: is anything drawn for nothing, left readable, or told by the exit alone?

A star with a private key, at several sizes; an exception between all statements of the protocol; and 40 catalogs whose
features choose by data, both neighbours given the same noisy integers.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.catalog.graph import ledger_path
from dpsql.central.central import publish_release
from dpsql.errors import Error
from dpsql.ledger.store import budget_report
from dpsql.noise import ExactNoise, os_entropy
from tests.ledger.test_raised import exits
from tests.privacy.test_exit_law import CASES, CATALOG, INTEGERS, both, pairs
from tests.releases import write_catalog

STARS = {"30 cities of 400": (30, 400), "one city of 43": (1, 43), "400 cities of 3": (400, 3)}
PLACES = (11, 43, 60, 400, 999)


def charged_once(folder: Path, cities: int, people: int) -> bool:
    """Whether the star is published, and its epsilon charged exactly once."""
    rows = f"range({cities * people}) t(i)"
    tables = {
        "person": f"SELECT i AS id, 'city ' || (i % {cities}) AS city FROM {rows}",
        "sales": "SELECT i AS id, ['a', 'b', 'c'][1 + (i + j) % 3] AS kind, i % 32 AS day, "
        f"(i * 7 + j) % 101 AS amount FROM {rows}, range(2) s(j)",
    }
    privacy = "cap: 3, epsilon: 1, unit: person.id, delta: 1e-6"
    given = "cap: 8, epsilon: 1/4, unit: person.id, delta: 1e-6, key_delta: 5e-7"
    text = CATALOG.replace(given, privacy).replace("{private: true, most: 8}", "private")
    catalog = load_catalog(write_catalog(folder, text, tables))
    try:
        publish_release(catalog, folder / "shop.dpsql", noise=ExactNoise(os_entropy()), key=os.urandom(32))
    except Error as error:
        print(error)
    (lineage,) = budget_report(ledger_path(catalog)).lineages
    charges = [(entry.state, round(float(entry.epsilon), 6)) for entry in lineage.entries]
    return (folder / "shop.dpsql").exists() and charges == [("sealed", 1.0)]


def uncharged(folder: Path) -> tuple[int, int]:
    """Exits between statements of the protocol, and those that drew for nothing or left a draft to read."""
    ends, wrong = 0, 0
    for begins in (False, True):
        try:
            for _ in exits(folder / str(begins), begins, 1):
                ends += 1
        except AssertionError as error:
            wrong += 1
            print(error)
    return ends, wrong


def measure(figures: Figures, folder: Path) -> None:
    once = sum(charged_once(folder / name, *star) for name, star in STARS.items())
    figures.at_least("stars with a private key published and charged once", once, len(STARS))
    for part in ("True", "False"):
        (folder / part).mkdir()
    ends, wrong = uncharged(folder)
    figures.at_least("exits between two statements", ends, 200)
    figures.at_most("exits that were drawn and uncharged, or left a draft that is answered from", wrong, 0)
    alike = 0
    for people in PLACES:
        for case, text in enumerate(CASES.values()):
            sides = pairs(folder / f"{case}-{people}", text, people)
            given = enumerate(INTEGERS.items())
            ends_of = [both(*sides, kind, seed, integers) for seed, (kind, integers) in given]
            alike += all(first == second and first.code == 0 for first, second in ends_of)
    figures.at_least("catalogs whose neighbours end alike on the same integers", alike, 40)


if __name__ == "__main__":
    main(measure)
