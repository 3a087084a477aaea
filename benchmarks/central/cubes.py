"""A cube of eight axes of the Adult census, against the best views that a curator writes by hand.

The questions are random ranges on every pair of axes. By hand there is a view for each pair, left to `auto`, by sets of
axes, or by Gaussian noise one by one and reconciled. Errors are exact expectations.

**Privacy**: public data.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np

from benchmarks.central.datasets import data_root
from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.curator.dry_release import Priced, priced_plan
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


def one_table(
    folder: Path,
    table: str,
    columns: Mapping[str, str],
    views: str = "",
    delta: str = "1e-6",
    file: str = "",
) -> Path:
    """A catalog of one table of people's rows at epsilon 1, with a cube of its columns where no views are given.

    Args:
        folder: where to.
        table: its name.
        columns: as catalogs have them.
        views: the same.
        delta: of the promise.
        file: of the rows, `TABLE.parquet` in the folder without it.
    """
    axes = ", ".join(f"{table}.{name}" for name in columns)
    listed = ", ".join(f"{name}: {column}" for name, column in columns.items())
    (folder / f"{table}.yaml").write_text(
        f"dpsql: 1\nname: {table}\nledger: ledger.duckdb\n"
        f'source: {{kind: parquet, root: ".", tables: {{{table}: "{file or f"{table}.parquet"}"}}}}\n'
        f"privacy: {{lineage: {table}, cap: 9, unit: row, epsilon: 1, delta: {delta}}}\n"
        f"tables: {{{table}: {{role: fact, columns: {{{listed}}}}}}}\n"
        "views:\n" + (views or f"  all: {{of: {table}, axes: [{axes}], ways: 2}}\n")
    )
    return folder / f"{table}.yaml"


def by_hand(mechanism: str) -> str:
    """A view for each pair."""
    return "".join(
        f"  v{i}: {{of: person, axes: [{', '.join(f'person.{a}' for a in pair)}], mechanism: {mechanism}}}\n"
        for i, pair in enumerate(combinations(AXES, 2))
    )


def priced(path: Path) -> Priced:
    """The plan of a catalog with its prices."""
    catalog = load_catalog(path)
    with closing(open_public(catalog)) as public:
        return priced_plan(catalog, axis_maker(catalog, public))


def error(path: Path) -> float:
    """Root of the mean variance of random ranges on every pair."""
    return float(np.sqrt(np.mean([s.typical**2 for s in forecast(priced(path)) if len(s.axes) == 2])))


def measure(figures: Figures, folder: Path) -> None:
    """Compare the cube with each way by hand."""
    census = partial(one_table, folder, "person", AXES, file=f"{data_root()}/adult/adult_train.parquet")
    ours = error(census())
    rivals = {word: error(census(by_hand(word))) for word in ("auto", "residual", "gaussian")}
    print(f"2 ways: cube {ours:.4f}", {word: round(value, 4) for word, value in rivals.items()})
    ratio = round(ours / min(rivals.values()), 6)
    figures.at_most("cube of 8 axes, error over the best views by hand", ratio, 1.0, "2 ways")


if __name__ == "__main__":
    main(measure)
