"""Conditions that may hold for some values outside of the domain: most stand in `statements/desk.sql`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.answer.test_statements import star
from tests.releases import seeded

pytestmark = pytest.mark.usefixtures("publishes")
NOBODY = {"epsilon: 4000": "epsilon: 2", "WHEN i % 5 < 2 THEN 'west'\n  WHEN i % 7 = 0 THEN 'forest' ": ""}
"""Changes of the star `desk` after which no text is unlisted."""


def test_noise_below_0_does_not_hide_that_there_may_be_rows(tmp_path: Path) -> None:
    """Where the mass of unlisted texts came out below 0, their share had an interval of 1e-12."""
    for seed in range(6):
        answerer, _ = star("desk", tmp_path / str(seed), seeded(seed), NOBODY)
        other = answerer.query("SELECT COUNT(*) FROM calls WHERE place = '(other)'")
        half = other.interval_rows()[1][0][0] - other.scalar()
        for sql, rows in (
            ("SELECT COUNT(*) FROM calls WHERE place = 'west'", 1.0),
            ("SELECT AVG(CASE WHEN place = 'west' THEN 1.0 ELSE 0 END) FROM calls", 2000.0),
        ):
            (_,), (high,) = answerer.query(sql).interval_rows()
            assert high[0] * rows > 0.3 * half, (seed, sql)
        answerer.release.close()
        if other.scalar() < 0:
            return
    pytest.fail("no draw was below 0")
