"""How long the nine pages take that a person reads: their words, code included, at 220 a minute.

python -m benchmarks.firsthour.reading
"""

from __future__ import annotations

from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = (
    "index.md",
    "five-minutes.md",
    "concepts.md",
    "tutorial/curator.md",
    "tutorial/analyst.md",
    "tutorial/survey.md",
    "operating.md",
    "promise.md",
    "cookbook.md",
)
WORDS_A_MINUTE, MINUTES = 220, 60


def minutes() -> dict[str, float]:
    """Minutes by page."""
    return {page: len((DOCS / page).read_text("utf-8").split()) / WORDS_A_MINUTE for page in PAGES}
