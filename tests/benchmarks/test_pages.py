"""Pages of docs/accuracy say what their topic's text says, and a make target writes each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.page import DOCS, page

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"peers": DOCS.parent / "peers.md"}
TOPICS = sorted(file.parent.name for file in (ROOT / "benchmarks").glob("*/text.md"))


def test_every_page_has_a_topic():
    assert sorted([*(file.stem for file in DOCS.glob("*.md")), *ELSEWHERE]) == TOPICS


@pytest.mark.parametrize("topic", TOPICS)
def test_a_page_is_its_text_with_what_was_measured(topic: str):
    text = (ROOT / "benchmarks" / topic / "text.md").read_text()
    before = ELSEWHERE.get(topic, DOCS / f"{topic}.md").read_text()
    assert page(text, {}, before) == before
    assert "(not measured yet)" not in before


@pytest.mark.parametrize("topic", TOPICS)
def test_a_target_writes_the_page(topic: str):
    makefile = (ROOT / "Makefile").read_text()
    (recipe,) = re.findall(rf"^page-{topic}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert f"benchmarks.{topic}.page" in recipe
    assert f"page-{topic}" in re.search(r"^\.PHONY:.*$", makefile, re.MULTILINE)[0]
    assert f"make page-{topic}`" in (ROOT / "docs" / "accuracy.md").read_text()
