"""A cube of eight axes of the Adult census, against the best views that a curator writes by hand.

The questions are random ranges on every set of two (or three) axes. By hand there is a view for each of these sets,
left to `auto`, by sets of axes, or by Gaussian noise one by one and reconciled. Errors are exact expectations.

**Privacy**: public data.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.central.datasets import data_root
from benchmarks.figures import Figures
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.curator.dry_release import priced_plan
from dpsql.curator.forecast import forecast

AXES = {
    "age": "{type: int, lower: 17, upper: 90, cuts: {width: 2}}",
    "hours_per_week": "{type: int, lower: 1, upper: 99, cuts: {width: 4}}",
    "education_num": "{type: int, lower: 1, upper: 16}",
    "capital_gain": "{type: int, lower: 0, upper: 99999, cuts: [1, 1000, 3000, 5000, 8000, 20000]}",
    "capital_loss": "{type: int, lower: 0, upper: 4999, cuts: [1, 1500, 1800, 2000, 2500]}",
    "sex": "{type: string, categories: [Female, Male]}",
    "race": "{type: string, categories: [White, Black, Asian-Pac-Islander, Amer-Indian-Eskimo, Other]}",
    "relationship":
        "{type: string, categories: [Husband, Wife, Own-child, Not-in-family, Other-relative, Unmarried]}",
}  # fmt: skip


def catalog(folder: Path, views: str) -> Path:
    """The census with some views."""
    columns = ", ".join(f"{name}: {spec}" for name, spec in AXES.items())
    (folder / "adult.yaml").write_text(
        "dpsql: 1\nname: adult\nledger: ledger.duckdb\nsource: {kind: parquet, tables: {person: adult_train.parquet}, "
        f'root: "{data_root()}/adult"}}\n'
        "privacy: {lineage: adult, cap: 9, unit: row, epsilon: 1, delta: 1e-6}\n"
        f"tables: {{person: {{role: fact, columns: {{{columns}}}}}}}\nviews:\n{views}"
    )
    return folder / "adult.yaml"


def cube(ways: int) -> str:
    """All axes."""
    return f"  all: {{of: person, axes: [{', '.join(f'person.{a}' for a in AXES)}], ways: {ways}}}\n"


def by_hand(ways: int, mechanism: str) -> str:
    """A view for each set."""
    sets = enumerate(combinations(AXES, ways))
    return "".join(
        f"  v{i}: {{of: person, axes: [{', '.join(f'person.{a}' for a in part)}], mechanism: {mechanism}}}\n"
        for i, part in sets
    )


def error(path: Path, ways: int) -> float:
    """Root of the mean variance of random ranges on every set of so many axes."""
    loaded = load_catalog(path)
    public = open_public(loaded)
    try:
        found = forecast(priced_plan(loaded, axis_maker(loaded, public)))
    finally:
        public.close()
    return float(np.sqrt(np.mean([s.typical**2 for s in found if len(s.axes) == ways])))


def main() -> int:
    """Print the figures."""
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ways in (2, 3):
            ours = error(catalog(folder, cube(ways)), ways)
            words = ("auto", "residual", "gaussian") if ways == 2 else ("residual", "gaussian")
            rivals = {word: error(catalog(folder, by_hand(ways, word)), ways) for word in words}
            print(f"{ways} ways: cube {ours:.4f}", {word: round(value, 4) for word, value in rivals.items()})
            ratio = round(ours / min(rivals.values()), 6)
            figures.at_most("cube of 8 axes, error over the best views by hand", ratio, 1.0, f"{ways} ways")
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
