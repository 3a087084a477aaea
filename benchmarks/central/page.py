"""benchmarks/results/central.md: its tables and plots, from what `benchmarks.central.measure` left in build/accuracy.

A section that was not measured leaves its tables as they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

import pandas as pd

from benchmarks.baselines import registry
from benchmarks.central import plots
from benchmarks.central.best import EPSILONS, PROMISED, RIVALS, Cell, against_best
from benchmarks.central.datasets import DPBENCH, DPBENCH_2D
from benchmarks.central.measure import BUILD
from benchmarks.central.views import view_table
from benchmarks.page import PLOTS, markdown, number, write
from dpsql.mechanisms.axis.lue_dptree import lue_dptree
from dpsql.mechanisms.axis.strategy import expected_error
from dpsql.mechanisms.axis.struct_construct import equal_strategy
from dpsql.tree import kary_tree


def blocks(rows: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """The page's measured blocks that these sections hold, and those that need no measured rows.

    Args:
        rows: measured rows by section.
    """
    made = {"VIEWS": view_table(), "STRUCTURES": structure_table()}
    for section, make in TABLES.items():
        if section in rows:
            made |= make(rows[section])
    return made


def chosen_tables(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of section 2."""
    return {"PROMISED": promised_table(rows), "HELD_OUT": held_out(rows), "ALIGNED": with_aligned(rows)}


def grid_tables(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of section 3."""
    others = [(data, 0.1) for data in rows.data.unique() if data not in PROMISED]
    promised = [(data, epsilon) for data in PROMISED for epsilon in EPSILONS]
    return {
        "GRID": grid_table(rows, promised),
        "OTHERS": grid_table(rows, others),
        "POINT": point_table(rows),
    }


def cell_rows(cells: list[Cell]) -> list[list[str]]:
    """The cells as table rows, with standard errors over the releases."""
    return [
        [
            cell.label,
            f"{number(cell.error)} ± {number(cell.spread)}",
            cell.best,
            number(cell.least) + (f" ± {number(cell.least_spread)}" if cell.least_spread else ", exact"),
            f"{cell.ratio:.2f}",
        ]
        for cell in cells
    ]


def promised_table(rows: pd.DataFrame) -> str:
    """The promised histograms, and what the first DAWA setting would have erred."""
    cells = against_best(rows, PROMISED, RIVALS)
    aligned = against_best(rows, PROMISED, ["DAWA, aligned buckets"])
    body = [[*row, number(other.least)] for row, other in zip(cell_rows(cells), aligned, strict=True)]
    return markdown(["data, epsilon", "auto", "best other", "its error", "ratio", "DAWA, aligned"], body)


def held_out(rows: pd.DataFrame) -> str:
    """The same comparison on the eight DPBench histograms that no promise names."""
    others = [name for name in DPBENCH if name not in PROMISED]
    cells = against_best(rows, others, RIVALS)
    near, worst = sum(cell.ratio <= 1.15 for cell in cells), max(cell.ratio for cell in cells)
    table = markdown(["data, epsilon", "auto", "best other", "its error", "ratio"], cell_rows(cells))
    return f"Within 15% of the best in {near} of {len(cells)} cells, worst ratio {worst:.2f}.\n\n{table}"


def with_aligned(rows: pd.DataFrame) -> str:
    """How the promise would stand if the first DAWA setting had been shipped instead of the present one."""
    rivals = [name for name in RIVALS if name != "DAWA"] + ["DAWA, aligned buckets"]
    cells = against_best(rows, PROMISED, rivals)
    near, worst = sum(cell.ratio <= 1.15 for cell in cells), max(cell.ratio for cell in cells)
    return f"With it in place of DAWA, `auto` is within 15% in {near} of 12 cells, at worst {worst:.1f} times the best."


def exact_table(rows: pd.DataFrame) -> str:
    """Computed and measured errors side by side."""
    sizes = (256, 1024, 4096, 65_536)
    body = []
    for mechanism in rows.mechanism.unique():
        cells = [str(mechanism)]
        for n in sizes:
            here = rows[(rows.mechanism == mechanism) & (rows.cells == n)].set_index("figure")
            measured = here.loc["measured"]
            cells.append(f"{here.loc['exact'].error:,.1f} / {measured.error:,.1f} ± {measured.spread:.1f}")
        body.append(cells)
    return markdown(["mechanism", *(f"n = {n:,}" for n in sizes)], body)


def grid_table(rows: pd.DataFrame, columns: list[tuple[str, float]]) -> str:
    """Mechanisms by (data, epsilon), all ranges; the least of each column in bold."""
    whole = rows[rows.length == 0].set_index(["data", "epsilon", "mechanism"]).error
    private = [name for name in registry.ALL if name not in registry.NOT_PRIVATE]
    least = {column: min(float(whole[(*column, name)]) for name in private) for column in columns}
    body = []
    for name in registry.ALL:
        values = [float(whole[(*column, name)]) for column in columns]
        shown = [
            f"**{number(v)}**" if v == least[c] else number(v) for v, c in zip(values, columns, strict=True)
        ]
        body.append([name, *shown])
    return markdown(["mechanism", *(f"{data} {epsilon:g}" for data, epsilon in columns)], body)


def point_table(rows: pd.DataFrame) -> str:
    """Ranges of one cell: where grouping and the non-negative step pay most."""
    names = [
        "identity",
        "identity, non-negative",
        "HB",
        "HB, non-negative",
        "auto",
        "DAWA",
        "DiffHR, private",
        "AHP",
        "GS",
    ]
    point = rows[rows.length == 1].set_index(["data", "epsilon", "mechanism"]).error
    columns = [(data, epsilon) for data in PROMISED for epsilon in EPSILONS]
    body = [[name, *(number(float(point[(*column, name)])) for column in columns)] for name in names]
    return markdown(["mechanism", *(f"{data} {epsilon:g}" for data, epsilon in columns)], body)


def planar_table(rows: pd.DataFrame) -> str:
    """Two axes, a table for each epsilon; the least of each column in bold."""
    names, tables = rows.mechanism.unique(), []
    for epsilon in EPSILONS:
        here = rows[rows.epsilon == epsilon].set_index(["data", "mechanism"]).error
        least = {data: min(float(here[(data, name)]) for name in names) for data in DPBENCH_2D}
        body = []
        for name in names:
            values = {data: float(here[(data, name)]) for data in DPBENCH_2D}
            shown = [f"**{number(v)}**" if v == least[data] else number(v) for data, v in values.items()]
            body.append([str(name), *shown])
        tables.append(f"Epsilon {epsilon:g}:\n\n{markdown(['mechanism', *DPBENCH_2D], body)}")
    return "\n\n".join(tables)


def log_table(rows: pd.DataFrame) -> str:
    """Declared logs by size; the least error of each row in bold."""
    values = rows.set_index(["cells", "data", "mechanism"]).error
    kinds, body = rows.mechanism.unique(), []
    for data, n in product(rows.data.unique(), rows.cells.unique()):
        errors = [float(values[(n, data, kind)]) for kind in kinds]
        shown = [
            "-" if e == float("inf") else f"**{e:.1f}**" if e == min(errors) else f"{e:.1f}" for e in errors
        ]
        gain = 1 - min(errors) / min(errors[:2])
        body.append([f"{data}, n = {n:,}", *shown, f"{100 * gain:.0f}%"])
    return markdown(["log", *kinds, "gain over rules"], body)


def uniform_table(rows: pd.DataFrame) -> str:
    """Figures 3.16 and 3.17: all ranges, every epsilon."""
    whole = rows[(rows.figure == "3.16-3.19") & (rows.length == 0)]
    columns = [(data, epsilon) for data in whole.data.unique() for epsilon in EPSILONS]
    values = whole.set_index(["data", "epsilon", "mechanism"]).error
    names = whole.mechanism.unique()
    body = [[str(name), *(number(float(values[(*column, name)])) for column in columns)] for name in names]
    return markdown(["mechanism", *(f"{data} {epsilon:g}" for data, epsilon in columns)], body)


def structure_table(cells: int = 11_342) -> str:
    """LUE-DPTree's trees by fan-out: expected errors over all ranges, exact; the least of each column in bold."""
    trees = {k: kary_tree(cells, k) for k in (2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 107)}
    errors = {
        k: (expected_error(lue_dptree(tree)), expected_error(equal_strategy(tree)))
        for k, tree in trees.items()
    }
    least = [min(column) for column in zip(*errors.values(), strict=True)]
    body = [
        [
            str(k),
            str(trees[k].depth),
            *(f"**{e:.0f}**" if e == low else f"{e:.0f}" for e, low in zip(row, least, strict=True)),
        ]
        for k, row in errors.items()
    ]
    return markdown(["children", "levels", "LUE-DPTree", "equal budgets"], body)


def group_table(rows: pd.DataFrame) -> str:
    """Figures 6-8 at two lengths."""
    columns = [(data, length) for data in rows.data.unique() for length in (1, 1024)]
    values = rows[rows.epsilon == 0.1].set_index(["data", "length", "mechanism"]).error
    names = rows.mechanism.unique()
    body = [[str(name), *(number(float(values[(*column, name)])) for column in columns)] for name in names]
    return markdown(["mechanism", *(f"{data}, length {length}" for data, length in columns)], body)


TABLES: dict[str, Callable[[pd.DataFrame], dict[str, str]]] = {
    "exact": lambda rows: {"EXACT": exact_table(rows)},
    "chosen": chosen_tables,
    "grid": grid_tables,
    "planar": lambda rows: {"PLANAR": planar_table(rows)},
    "logs": lambda rows: {"LOGS": log_table(rows)},
    "trees": lambda rows: {"UNIFORM": uniform_table(rows)},
    "groups": lambda rows: {"GROUPS": group_table(rows)},
}
"""Section -> its blocks."""


def draw(rows: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """All plots of the page."""
    trees, groups, grid = rows["trees"], rows["groups"], rows["grid"]
    short = trees[trees.figure == "3.11-3.12"]
    panels = [(str(data), 1.0) for data in short.data.unique()]
    plots.by_length(short, panels, folder / "sc.png", "LUE-DPTree's figures 3.11 and 3.12, measured again")
    lue = trees[trees.figure == "3.16-3.19"]
    panels = [(str(data), 1.0) for data in lue.data.unique()]
    plots.by_length(lue, panels, folder / "lue.png", "LUE-DPTree's figures 3.18 and 3.19, measured again")
    for index, data in enumerate(groups.data.unique(), start=6):
        panels = [(str(data), epsilon) for epsilon in EPSILONS]
        plots.by_length(
            groups, panels, folder / f"diffhr_{index}.png", f"DiffHR's figure {index}, measured again"
        )
    names = ["auto", "auto, unbiased", "HB, non-negative", "DAWA", "DiffHR, private", "identity", "AHP"]
    chosen = grid[grid.mechanism.isin(names)]
    panels = [(data, 0.1) for data in PROMISED]
    plots.by_length(chosen, panels, folder / "dpbench.png", "DPBench, by range length")


def main() -> None:
    """Write the page from what was measured; plots where all their sections were."""
    rows = {file.stem: pd.read_parquet(file) for file in sorted(BUILD.glob("*.parquet"))}
    write("central", blocks(rows))
    if {"trees", "groups", "grid"} <= set(rows):
        draw(rows, PLOTS)


if __name__ == "__main__":
    main()
