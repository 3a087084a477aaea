"""`max_ids: auto` with a measure that may be NULL: rows where it is known have no total of their own that was measured.

They are multiplied by the factor of all rows, so the noise of their own total stays. It was taken for exact:
`COUNT(x) * 1.0 / COUNT(*)` of a whole table had an interval of no width, and `COUNT(*) - COUNT(x)` held in 14 of 25
releases.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpsql import api
from tests.userlevel_star import Row, write_star

WHOLE = """SELECT COUNT(*) - COUNT(amount) AS missing, COUNT(amount) * 1.0 / COUNT(*) AS known,
    COUNT(amount) AS of_known, COUNT(*) AS n, AVG(amount) AS mean FROM sales"""


def star(folder: Path) -> tuple[Path, list[Row]]:
    """1,500 customers with 1 to 8 rows, a sixth of which have no amount."""
    chance = np.random.default_rng(7)
    rows: list[Row] = [
        (
            owner,
            None if chance.random() < 1 / 6 else float(chance.integers(1, 100)),
            int(chance.integers(1, 13)),
        )
        for owner in range(1500)
        for _ in range(min(int(chance.geometric(0.4)), 8))
    ]
    return write_star(folder, rows, {owner: "nsw"[owner % 3] for owner in range(1500)}, nullable=True), rows


def test_the_rows_where_a_measure_is_known_have_an_error_of_their_own(tmp_path, publishes):
    catalog, _ = star(tmp_path)
    answer = api.query(WHOLE, api.publish(catalog, tmp_path / "shop.dpsql").path)
    (missing, known, of_known, n, _), (off_missing, off_known, off_of_known, *_) = (
        answer.rows[0],
        answer.stderr_rows[0],
    )
    # the difference is at least as uncertain as the share, times the rows; both errors were 0, or nearly so
    assert off_known > 0.002 and off_missing > 0.5 * off_known * n
    assert known == pytest.approx(of_known / n) and missing == pytest.approx(n - of_known)
    assert off_of_known > off_known * n / 2
    lines = "\n".join(answer.notes)
    assert (
        "counted and scaled up" in lines
        and "sums of count(" not in lines
        and "averages of count(" not in lines
    )


@pytest.mark.slow
def test_what_is_missing_lies_in_its_interval(tmp_path, publishes):
    """Of 60 releases at 95% fewer than 51 would hold once in 10,000 times."""
    catalog, rows = star(tmp_path)
    amounts = [amount for _, amount, _ in rows if amount is not None]
    truth = (
        len(rows) - len(amounts),
        len(amounts) / len(rows),
        len(amounts),
        len(rows),
        sum(amounts) / len(amounts),
    )
    held = np.zeros(5)
    catalog.write_text(catalog.read_text().replace("cap: 10,", "cap: 1000,"))
    for number in range(60):
        low, high = api.query(WHOLE, api.publish(catalog, tmp_path / f"{number}.dpsql").path).interval_rows(
            0.95
        )
        ends = zip(low[0], high[0], truth, strict=True)
        held += [(a is None or a <= exact) and (b is None or exact <= b) for a, b, exact in ends]
    assert held.min() >= 51, held
