"""Witnesses of shipped catalogs, checked by a program in another language.

python -m benchmarks.sources.witness [names of catalogs]
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.withstand.prove import PEOPLE, PRODUCTS, shipped
from dpsql.curator.prove import prove
from dpsql.examples.retail import make_star, write_star
from tests.privacy.test_witness import CATALOGS, verified

LINE = re.compile(r"estimates of (\d+) of (\d+) statistics within ([0-9.]+) units")


def main(names: list[str]) -> int:
    """Measure and print; 1 if any figure is short."""
    figures, agreed, worst = Figures(), 0, 0.0
    if "DPSQL_DATA" not in os.environ:
        print("DPSQL_DATA is not set: catalogs over public data are left out")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_star(folder / "data", make_star(1, PEOPLE, PRODUCTS))
        for catalog in shipped(names or list(CATALOGS), folder / "data"):
            prove(catalog, witness=folder / "out.jsonl")
            done = verified(folder / "out.jsonl")
            found = [(int(a), int(b), float(c)) for a, b, c in LINE.findall(done.stdout)]
            print(f"{catalog.name}: {done.stderr or found}", flush=True)
            agreed += done.returncode == 0 and all(redone == whole for redone, whole, _ in found)
            worst = max([worst, *(distance for *_, distance in found)])
    figures.at_least("sources: catalogs whose witness the verifier agrees on", agreed, len(names) or 10)
    figures.table("sources: largest distance of an estimate redone, in units of 2^-20", worst)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
