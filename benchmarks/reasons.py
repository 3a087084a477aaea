"""Why a figure is short, for the page docs/figures.md: one line each, as long as it is."""

from __future__ import annotations

ONCE = "opendp adds integers of a histogram in memory; a statement of SQL is parsed, routed and given an interval"

REASONS: dict[str, str] = {
    "peers, CPU a question, repeated shapes, over the fastest peer's (opendp)": ONCE,
    "peers, CPU a question, new shapes, over the fastest peer's (opendp)": f"{ONCE}, and a new shape is planned",
    "planes within 15% of what the method's page reaches, of 21": (
        "LOAN-FUNDED-INCOME at .01 and .1, STROKE at .1 and 1, ADULT-2D at .01: rows lie along lines there, which "
        "blocks that are halved both ways follow slowly; AG alone is better in one of the five"
    ),
}
"""Figure -> reason."""
