"""Damaged frames: whatever arrives, the server answers with whole messages and typed errors, at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interfaces.frames import KNOWN, MEANT, Conversation, Served, conversation, frame

FRAMES = 300


@pytest.fixture(scope="module")
def served(shop: Path) -> Iterator[Served]:
    found = Served(shop)
    yield found
    found.close()


def test_an_undamaged_conversation_is_answered(served: Served) -> None:
    said = MEANT + frame("Q", b"SELECT COUNT(*) FROM sales\0") + frame("X")
    assert served.hear(Conversation("", said, False)).kinds == "RSSSSSSSSSSSKZNNTDCZ"
    assert served.hear(Conversation("", said, True)).states == ("08P01",)


def test_damaged_frames_end_in_typed_errors(served: Served) -> None:
    states = set[str]()
    for seed in range(FRAMES):
        said = conversation(seed)
        outcome = served.hear(said)
        assert set(outcome.states) <= KNOWN, (seed, said, outcome)
        assert outcome.cpu < 1, (seed, said)
        states |= set(outcome.states)
    assert {"08P01", "28P01", "42000"} <= states  # the damage reached each of them
