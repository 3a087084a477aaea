"""Pages of measured tables, `benchmarks/results/TOPIC.md`: each measured block stands between two marks.

A topic's `page.py` says which blocks there are and fills them; the sentences around them are edited on the page. One
section can be measured again while the others stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results"


def markdown(header: Iterable[str], body: Iterable[Iterable[str]]) -> str:
    """A markdown table; numbers are aligned to the right.

    Example:
        >>> print(markdown(["n", "error"], [["8", "1.5"]]))
        | n | error |
        |---|--:|
        | 8 | 1.5 |
    """
    head = list(header)
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in body])


def number(value: float) -> str:
    """Three digits, thousands apart, powers of ten where a number is hopeless."""
    if value >= 1e6:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def write(name: str, measured: Mapping[str, str]) -> None:
    """Fill the measured blocks of a page of results.

    Args:
        name: of the page, without its ending.
        measured: blocks by name; a block that is not among them stays as the page has it.
    """
    file = RESULTS / f"{name}.md"
    file.write_text(page(file.read_text(encoding="utf-8"), measured), encoding="utf-8")


def page(text: str, measured: Mapping[str, str]) -> str:
    """A page with some of its measured blocks replaced.

    Args:
        text: the page, each block between `<!-- measured: NAME -->` and `<!-- end of NAME -->`.
        measured: blocks by name.

    Raises:
        KeyError: the page has no place for a block.

    Example:
        >>> page("a\\n<!-- measured: X -->\\n\\n1\\n\\n<!-- end of X -->\\nb", {"X": "2"})
        'a\\n<!-- measured: X -->\\n\\n2\\n\\n<!-- end of X -->\\nb'
    """
    for name, block in measured.items():
        start, end = f"<!-- measured: {name} -->\n", f"\n<!-- end of {name} -->"
        before, found, rest = text.partition(start)
        if not found or end not in rest:
            raise KeyError(f"the page has no place for {name}")
        text = f"{before}{start}\n{block}\n{end}{rest.partition(end)[2]}"
    return text
