"""Figures of local releases: one axis, rows and a bit, rounds, boxes over several axes."""

from __future__ import annotations

from benchmarks.figures import Figures, main, sections
from benchmarks.local import axis, lle, planes, rounds, rows


def one_axis(figures: Figures, quick: bool) -> None:
    """The stack against its rivals."""
    axis.adaptive_alone(figures)
    axis.synthetic(figures, runs=1 if quick else 6)
    axis.adult(figures, runs=1 if quick else 24)
    axis.spiky_coverage(figures, runs=4 if quick else 40)


def by_name(figures: Figures, quick: bool) -> None:
    """LLE."""
    lle.coverage(figures, runs=1 if quick else 20)
    lle.against_script(figures, runs=1 if quick else 2)


def measure(figures: Figures, *, only: str = "", quick: bool = False) -> None:
    """Measure one part, or all; `quick` with fewer runs and people."""
    sections([only] if only else (), {
        "axis": lambda: one_axis(figures, quick),
        "rows": lambda: rows.ranges(figures, runs=8 if quick else 60),
        "bars": lambda: axis.large_ranges(figures, runs=1 if quick else 8),
        "rounds": lambda: rounds.published(figures, runs=1 if quick else 6),
        "boxes": lambda: planes.five_axes(figures, runs=1 if quick else 6),
        "lle": lambda: by_name(figures, quick),
    })  # fmt: skip


if __name__ == "__main__":
    main(measure)
