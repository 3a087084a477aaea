"""Draws docs/pictures from the bundled shop: published afresh, with noise of the operating system.

Run `python -m docs.make_pictures`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import matplotlib

import dpsql

ROOT = Path(__file__).resolve().parents[1]
TARGET = Path(__file__).parent / "pictures" / "months.svg"
QUESTION = """SELECT DATE_TRUNC('month', sold_on) AS month, COUNT(*) AS sales
FROM sales JOIN customer USING (customer_id) WHERE region = 'west' GROUP BY month ORDER BY month"""


def draw(result: dpsql.Result, target: Path) -> None:
    """Bars with error bars: values of the second column by months of the first.

    Args:
        result: a month and a noisy number a row; rows without a month are left out.
        target: the SVG file.
    """
    matplotlib.use("svg")
    from matplotlib import pyplot

    low, high = result.interval_rows(0.95)
    months = [i for i, row in enumerate(result.rows) if row[0] is not None]
    names = [result.rows[i][0].strftime("%b") for i in months]
    values = [float(result.rows[i][1]) for i in months]
    below = [values[k] - float(low[i][1]) for k, i in enumerate(months)]
    above = [float(high[i][1]) - values[k] for k, i in enumerate(months)]
    with pyplot.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dpsql", "font.family": "sans-serif"}):
        figure, axes = pyplot.subplots(figsize=(7, 2.8))
        axes.bar(names, values, color="#8fb8de")
        axes.errorbar(names, values, yerr=[below, above], fmt="none", ecolor="#1b3a57", capsize=3)
        axes.set_ylabel(result.columns[1])
        axes.set_title("Sales in the west, with 95% intervals", fontsize=11)
        axes.spines[["top", "right"]].set_visible(False)
        figure.tight_layout()
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, format="svg", metadata={"Date": None})
        pyplot.close(figure)


def main() -> None:
    """Publish the shop and draw one answer."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "retail.yaml").write_bytes((ROOT / "catalog" / "retail_user.yaml").read_bytes())
        (folder / "data").symlink_to(ROOT / "data")
        dpsql.publish(folder / "retail.yaml", folder / "retail.dpsql")
        draw(dpsql.query(QUESTION, release=folder / "retail.dpsql"), TARGET)
    print(TARGET)


if __name__ == "__main__":
    main()
