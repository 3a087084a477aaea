"""Nine pages are read in less than an hour; every other page says in its first line what it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.firsthour.reading import DOCS, MINUTES, PAGES, minutes

KINDS = (
    "*A guide for one task.*",
    "*Reference, to look things up in.*",
    "*Evidence: proofs, methods and measurements.*",
)
OTHERS = sorted(
    path
    for path in DOCS.rglob("*.md")
    if str(path.relative_to(DOCS)) not in PAGES and path.parent.name != "adr"
)
PACKAGE = DOCS.parent / "dpsql"


def test_nine_pages_are_read_in_an_hour() -> None:
    assert len(PAGES) == 9
    assert sum(minutes().values()) <= MINUTES


@pytest.mark.parametrize("page", OTHERS, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_says_what_it_is_for(page: Path) -> None:
    assert page.read_text("utf-8").splitlines()[2] in KINDS


def test_the_front_page_links_the_nine() -> None:
    front = (DOCS / "index.md").read_text("utf-8")
    assert [page for page in PAGES[1:] if f"({page})" not in front] == []


def test_messages_of_the_page_are_messages_of_the_package() -> None:
    """`..` stands for names and numbers; what lies between is found in the source."""
    source = re.sub(r'"\s*f?"', "", "".join(path.read_text("utf-8") for path in PACKAGE.rglob("*.py")))
    quoted = re.findall(r"^\| `([^`]+)`", (DOCS / "messages.md").read_text("utf-8"), flags=re.M)
    parts = [part.strip() for message in quoted for part in message.split("..")]
    assert len(quoted) >= 14
    assert [part for part in parts if len(part) > 3 and part not in source] == []
