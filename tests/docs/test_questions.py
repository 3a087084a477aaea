"""Forty questions, written down before their answers were looked for, are each answered near the index."""

from __future__ import annotations

import re
from pathlib import Path

from tests.structure.test_pages_read import DOCS

TABLE = Path(__file__).with_name("questions.md").read_text("utf-8")
ROW = re.compile(r"^\| (curator|analyst|engineer) \| (.+\?) \| (\S+\.md) \| (.+) \|$", re.MULTILINE)


def linked(page: Path) -> set[Path]:
    """Pages that a page links to, or names in a table of contents."""
    text = page.read_text("utf-8")
    names = re.findall(r"\]\(([^)#\s:]+\.md)", text)
    lists = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    globs = [f"{line}.md" for entries in lists for line in entries.splitlines() if line[:1] not in ("", ":")]
    return {(page.parent / name).resolve() for name in names} | {f for g in globs for f in DOCS.glob(g)}


def test_each_question_has_its_answer_two_links_from_the_index() -> None:
    near = linked(DOCS / "index.md")
    near |= {page for first in near for page in linked(first)}
    rows = ROW.findall(TABLE)
    assert len(rows) == len({question for _, question, *_ in rows}) == 40
    text = {name: " ".join((DOCS / name).read_text("utf-8").split()) for _, _, name, _ in rows}
    assert [question for _, question, name, words in rows if words not in text[name]] == []
    assert {name for name in text if (DOCS / name).resolve() not in near} == set()
