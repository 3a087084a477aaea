"""Pages of results keep a place for every block that their topic measures."""

from __future__ import annotations

import re

import pytest

from benchmarks.page import RESULTS, page

TOPICS = sorted(file.parent.name for file in RESULTS.parent.glob("*/page.py"))


@pytest.mark.parametrize("topic", TOPICS)
def test_a_block_measured_again_leaves_the_rest_of_the_page(topic: str) -> None:
    text = (RESULTS / f"{topic}.md").read_text("utf-8")
    names = re.findall(r"^<!-- measured: ([A-Z0-9_]+) -->$", text, re.M)
    assert names
    assert names == re.findall(r"^<!-- end of ([A-Z0-9_]+) -->$", text, re.M)
    replaced = page(text, {names[0]: "measured again"})
    start = f"<!-- measured: {names[0]} -->"
    assert replaced.partition(start)[0] == text.partition(start)[0]
    end = f"<!-- end of {names[0]} -->"
    assert replaced.partition(end)[2] == text.partition(end)[2]
    assert page(text, {}) == text


def test_a_block_without_a_place_is_an_error() -> None:
    with pytest.raises(KeyError):
        page("no marks", {"X": "1"})
