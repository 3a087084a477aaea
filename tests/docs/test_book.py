"""Readers find answers: forty questions, and each paper's algorithm with its catalog word, code and test."""

from __future__ import annotations

import re
from pathlib import Path

from tests.structure.test_pages_read import DOCS

QUESTION = re.compile(r"^\| (?:curator|analyst|engineer) \| .+\? \| (\S+\.md) \| (.+) \|$", re.MULTILINE)
PAPER = re.compile(r"^\| (.+?) \| (.+?) \| `(\S+?)::(\w+)` \| `(\S+?)::(\w+)` \| .+ \|$", re.MULTILINE)
SEEDS = {"000": 6, "001": 8, "002": 1, "003": 7, "004": 3}


def linked(page: Path) -> set[Path]:
    """Pages that a page links to, or names in a table of contents."""
    text = page.read_text("utf-8")
    names = re.findall(r"\]\(([^)#\s:]+\.md)", text)
    lists = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    entries = [line for entry in lists for line in entry.splitlines() if line[:1] not in ("", ":")]
    return {(page.parent / name).resolve() for name in names} | {
        f for e in entries for f in DOCS.glob(f"{e}.md")
    }


def test_each_question_has_its_answer_two_links_from_the_index() -> None:
    rows = QUESTION.findall(Path(__file__).with_name("questions.md").read_text("utf-8"))
    assert len(rows) == 40
    assert [words for name, words in rows if words not in " ".join((DOCS / name).read_text().split())] == []
    first = linked(DOCS / "index.md")
    assert set(DOCS.rglob("*.md")) - first.union(*map(linked, first)) == {DOCS / "index.md"}


def is_written(word: str) -> bool:
    """True if the catalog's reference has a key, and one of its rows the value after it."""
    key, _, value = word.strip("`").partition(": ")
    rows = re.findall(rf"^\| `{key}` \|.*$", (DOCS / "catalog.md").read_text("utf-8"), re.MULTILINE)
    return any(not value or value in re.split(r"\W+", row) for row in rows)


def test_every_algorithm_of_the_papers_can_be_followed() -> None:
    page = (DOCS / "papers.md").read_text("utf-8")
    rows = PAPER.findall(page)
    assert len(rows) == len(re.findall(r"^\| .*::.*\|$", page, re.MULTILINE))
    for title, word, module, name, test, case in rows:
        assert word in ("*auto*", "-") or is_written(word), title
        for file, named in ((DOCS.parent / "dpsql" / module, name), (DOCS.parent / "tests" / test, case)):
            assert re.search(rf"^(def |class )?{named}\b", file.read_text("utf-8"), re.MULTILINE), title
    assert {seed: sum(row[0].startswith(f"{seed} ") for row in rows) for seed in SEEDS} == SEEDS
    assert not is_written("mechanism: lue_tree") and not is_written("taus")
