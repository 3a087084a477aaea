"""Small plots of measured errors against range length, one panel for each data set and epsilon."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")

import matplotlib.pyplot as plt

STYLES = ("o-", "s-", "^-", "v--", "d--", "x:", "*:", "+-.")


def by_length(rows: pd.DataFrame, panels: list[tuple[str, float]], path: Path, title: str) -> None:
    """Error times epsilon squared against range length, both logarithmic.

    Args:
        rows: measurements of one figure.
        panels: (data set, epsilon) of each panel.
        path: where the PNG goes.
        title: over all panels.
    """
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.4), sharey=True, squeeze=False)
    for axis, (data, epsilon) in zip(axes[0], panels, strict=True):
        here = rows[(rows.data == data) & (rows.epsilon == epsilon) & (rows.length > 0)]
        for style, (mechanism, part) in zip(STYLES, here.groupby("mechanism", sort=False), strict=False):
            axis.loglog(part.length, part.error, style, label=mechanism, markersize=3, linewidth=1, base=2)
        axis.set_yscale("log")
        axis.set_title(f"{data}, epsilon {epsilon:g}", fontsize=8)
        axis.set_xlabel("range length", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("mean squared error x epsilon^2", fontsize=8)
    axes[0][-1].legend(fontsize=6)
    figure.suptitle(title, fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=72, metadata={"Software": ""})
    plt.close(figure)
