"""Witnesses of shipped catalogs, checked by a program in another language."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.figures import Figures, main
from benchmarks.withstand.prove import PEOPLE, PRODUCTS, shipped
from dpsql.curator.prove import prove
from dpsql.examples.retail import make_star, write_star
from tests.privacy.test_witness import CATALOGS, verified

LINE = re.compile(r"estimates of (\d+) of (\d+) statistics within ([0-9.]+) units")


def measure(figures: Figures, folder: Path, catalogs: Sequence[str] = ()) -> None:
    """Check the named catalogs, or all."""
    agreed, worst = 0, 0.0
    if "DPSQL_DATA" not in os.environ:
        print("DPSQL_DATA is not set: catalogs over public data are left out")
    write_star(folder / "data", make_star(1, PEOPLE, PRODUCTS))
    for catalog in shipped(catalogs or list(CATALOGS), folder / "data"):
        prove(catalog, witness=folder / "out.jsonl")
        done = verified(folder / "out.jsonl")
        found = [(int(a), int(b), float(c)) for a, b, c in LINE.findall(done.stdout)]
        print(f"{catalog.name}: {done.stderr or found}", flush=True)
        agreed += done.returncode == 0 and all(redone == whole for redone, whole, _ in found)
        worst = max([worst, *(distance for *_, distance in found)])
    title = "sources: catalogs whose witness the verifier agrees on"
    figures.at_least(title, agreed, len(catalogs) or 10)
    figures.table("sources: largest distance of an estimate redone, in units of 2^-20", worst)


if __name__ == "__main__":
    main(measure)
