"""Publishing says what an earlier crash had left behind."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.budget import Epsilon
from dpsql.ledger import Receipt, Recovery
from dpsql.publishing.central import Published


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (Recovery(), "published"),
        (Recovery(finished=Path("a.dpsql")), "a.dpsql is now in place"),
        (Recovery(lost=Path("b.dpsql")), "stays charged but its file b.dpsql is gone"),
        (Recovery(removed=Path(".c")), "its draw was destroyed"),
    ],
)
def test_recovery_is_said(recovery, words):
    receipt = Receipt("id", Path("x.dpsql"), "0" * 64, True, Fraction(1), Fraction(3), Epsilon(), recovery)
    assert words in Published(Path("x.dpsql"), receipt, 2, 10).summary().splitlines()[0]
