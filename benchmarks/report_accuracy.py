"""Tables, plots and `figure` lines from the measured rows: docs/accuracy/central.md is written here, not by hand."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks import plots
from benchmarks.baselines import registry
from benchmarks.datasets import DPBENCH, DPBENCH_2D
from benchmarks.plane_errors import plane_table
from benchmarks.views import view_table

PROMISED = ("NETTRACE", "SEARCHLOGS", "HEPTH", "INCOME")
EPSILONS = (0.01, 0.1, 1.0)
BOUNDS = {256: 66, 1024: 125, 4096: 207, 16_384: 327, 65_536: 475, 262_144: 676}
TEXT = Path(__file__).with_name("accuracy_text.md")


def write(build: Path, docs: Path) -> int:
    """Write the page and its plots, print the figure lines.

    Args:
        build: folder of the parquet files.
        docs: folder of the page; plots go to its `plots` folder.

    Returns:
        0 if every promise is kept, 1 if any is short.
    """
    rows = {path.stem: pd.read_parquet(path) for path in sorted(build.glob("*.parquet"))}
    (docs / "plots").mkdir(parents=True, exist_ok=True)
    lines = promises(rows["chosen"]) + size_bounds(rows["exact"])
    parts = chosen_parts(rows["chosen"]) | {
        "exact": exact_table(rows["exact"]),
        "grid": grid_table(rows["grid"], [(data, epsilon) for data in PROMISED for epsilon in EPSILONS]),
        "others": grid_table(
            rows["grid"], [(data, 0.1) for data in rows["grid"].data.unique() if data not in PROMISED]
        ),
        "point": point_table(rows["grid"]),
        "planar": planar_table(rows["planar"]),
        "planes": plane_table(),
        "views": view_table(),
        "logs": log_table(rows["logs"]),
        "uniform": uniform_table(rows["trees"]),
        "groups": group_table(rows["groups"]),
    }
    draw(rows, docs / "plots")
    (docs / "central.md").write_text(filled(TEXT.read_text(), parts))
    return finish(lines)


def write_chosen(build: Path, docs: Path) -> int:
    """Write section 2 of the page alone, print its figure lines.

    Args:
        build: folder of chosen.parquet.
        docs: folder of the page.

    Returns:
        0 if every promise is kept, 1 if any is short.
    """
    rows = pd.read_parquet(build / "chosen.parquet")
    _, section, _ = cut(TEXT.read_text())
    before, _, after = cut((docs / "central.md").read_text())
    (docs / "central.md").write_text(before + filled(section, chosen_parts(rows)) + after)
    return finish(promises(rows))


def cut(page: str) -> tuple[str, str, str]:
    """What stands before section 2, in it and after it."""
    start, end = page.index("\n## 2. "), page.index("\n## 3. ")
    return page[:start], page[start:end], page[end:]


def filled(text: str, parts: dict[str, str]) -> str:
    """The text with its tables."""
    for name, table in parts.items():
        text = text.replace(f"<!-- {name} -->", table)
    return text


def finish(lines: list[tuple[str, bool]]) -> int:
    """Print the figure lines; 1 if any is short."""
    print("\n".join(line for line, _ in lines))
    return 0 if all(kept for _, kept in lines) else 1


def chosen_parts(rows: pd.DataFrame) -> dict[str, str]:
    """The tables of section 2."""
    return {"promised": promised_table(rows), "held_out": held_out(rows), "aligned": with_aligned(rows)}


def markdown(header: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A markdown table; numbers are aligned to the right."""
    head = list(header)
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * (len(head) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])


def number(value: float) -> str:
    """Three digits, thousands apart, powers of ten where a number is hopeless."""
    if value >= 1e6:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def line(name: str, value: float, bound: float, at_least: bool = False, digits: int = 2) -> tuple[str, bool]:
    """One `figure` line and whether its bound is kept."""
    kept = value >= bound if at_least else value <= bound
    sign = ">=" if at_least else "<="
    return f"figure {name}: {value:.{digits}f} ({sign} {bound:g}) {'ok' if kept else 'short'}", kept


class Cell(NamedTuple):
    """`auto` against the best rival on one histogram at one epsilon; errors over all ranges, spread 0 if exact."""

    label: str
    error: float
    spread: float
    best: str
    least: float
    least_spread: float

    @property
    def ratio(self) -> float:
        """Error of `auto` over that of the best rival."""
        return self.error / self.least


def against_best(rows: pd.DataFrame, names: Iterable[str], rivals: list[str]) -> list[Cell]:
    """For each histogram and epsilon, `auto` and the best rival."""
    whole = rows[rows.length == 0].set_index(["data", "epsilon", "mechanism"])
    error, spread = whole.error.to_dict(), whole.spread.to_dict()
    out = []
    for data, epsilon in product(names, EPSILONS):
        best = min(rivals, key=lambda name: error[(data, epsilon, name)])
        own, rival = (data, epsilon, "auto"), (data, epsilon, best)
        out.append(Cell(f"{data}, {epsilon:g}", error[own], spread[own], best, error[rival], spread[rival]))
    return out


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


RIVALS = [name for name in registry.SHIPPED if name != "auto"]


def promises(rows: pd.DataFrame) -> list[tuple[str, bool]]:
    """`auto` against the best of what ships, on the four promised histograms."""
    cells = against_best(rows, PROMISED, RIVALS)
    near = sum(cell.ratio <= 1.15 for cell in cells)
    return [
        line("DPBench cells with auto within 15% of the best", near, 10, True, 0),
        line("DPBench worst ratio of auto to the best", max(cell.ratio for cell in cells), 2.0),
    ]


def size_bounds(exact: pd.DataFrame) -> list[tuple[str, bool]]:
    """The exact error of `auto` over all ranges, by size."""
    auto = exact[(exact.figure == "exact") & (exact.mechanism == "auto (unbiased)")].set_index("cells").error
    return [line(f"all ranges, n = {n}, exact error", float(auto[n]), bound) for n, bound in BOUNDS.items()]


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
    rivals = [name for name in registry.SHIPPED if name not in ("auto", "DAWA")] + ["DAWA, aligned buckets"]
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


def group_table(rows: pd.DataFrame) -> str:
    """Figures 6-8 at two lengths."""
    columns = [(data, length) for data in rows.data.unique() for length in (1, 1024)]
    values = rows[rows.epsilon == 0.1].set_index(["data", "length", "mechanism"]).error
    names = rows.mechanism.unique()
    body = [[str(name), *(number(float(values[(*column, name)])) for column in columns)] for name in names]
    return markdown(["mechanism", *(f"{data}, length {length}" for data, length in columns)], body)


def draw(rows: dict[str, pd.DataFrame], folder: Path) -> None:
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
