"""Texts that no leaf lists are flagged with the nearest spelling; listed ones and other conditions are not."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql

pytestmark = pytest.mark.usefixtures("publishes")


def flags(shop: Path, condition: str) -> list[str]:
    result = dpsql.query(f"SELECT COUNT(*) FROM shop WHERE {condition}", release=shop)
    return [str(note) for note in result.notes if "lists no value" in str(note)]


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("category = 'cofee'", "'cofee' (nearest: 'coffee') for "),
        ("category = 'TEA'", "'TEA' (nearest: 'tea') for "),
        ("category IN ('tea', 'xyzzy')", "no value 'xyzzy' for "),
        (
            "category LIKE 'choc%'",
            "category LIKE 'choc%': product.category has cake, coffee, tea; no row",
        ),
    ],
)
def test_an_absent_text_is_flagged(shop: Path, condition: str, words: str) -> None:
    (flag,) = flags(shop, condition)
    assert words in flag and flag.endswith("; no row has it")


@pytest.mark.parametrize(
    "condition",
    ["category = 'tea'", "category IN ('tea', 'cake')", "category LIKE 'c%'", "category <> 'xyzzy'"],
)
def test_listed_texts_and_exclusions_are_not(shop: Path, condition: str) -> None:
    assert flags(shop, condition) == []
