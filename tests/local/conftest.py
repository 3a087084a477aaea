"""What several tests of local reports need."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.intervals import scale
from dpsql.intervals.errorfunctions import ErrorComponents


@pytest.fixture
def no_unasked_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two-sided intervals of counts and sums: made-up people have no row beyond those they are asked about.

    Where people may have one, an upper end is open, and nothing would be tried of the noise above.
    """

    def closed(_: scale.Terms, count: int) -> ErrorComponents:
        return ErrorComponents(*(np.zeros(count) for _ in range(6)))

    monkeypatch.setattr(scale, "unasked_rows", closed)
