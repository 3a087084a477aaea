"""benchmarks/results/streams.md and its plot: `python -m benchmarks.streams.page`."""

from __future__ import annotations

from benchmarks.page import PLOTS, write
from benchmarks.streams.agree import choice_table
from benchmarks.streams.measure import comparison, speed, year
from benchmarks.streams.retail import plot, retail_run, retail_table
from benchmarks.streams.spectral import spectral_table


def main() -> None:
    """Measure, write the page and its plot."""
    blocks = {
        "COMPARISON": comparison(),
        "YEAR": year(),
        "CHOICE": choice_table(),
        "SPECTRAL": spectral_table(),
        "SPEED": speed(),
        "WINDOWS": retail_table(retail_run()),
    }
    text = {name: "\n".join(lines).strip("\n") for name, lines in blocks.items()}
    write("streams", text)
    plot(PLOTS / "streams.png")


if __name__ == "__main__":
    main()
