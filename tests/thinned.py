"""Many cases of one promise: a few run by default, all of them in `make slow`.

@pytest.mark.parametrize("seed", by_default(range(6), 2))
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest


def rounds(slow: int, default: int) -> int:
    """How often something is drawn or tried: in `make slow`, and by default."""
    return slow if os.environ.get("HYPOTHESIS_PROFILE") == "slow" else default


def by_default(cases: Iterable[Any], count: int) -> list[Any]:
    """Cases of one argument, or tuples of several; all but `count` of them, spread evenly, are slow.

    >>> [parameter.marks != () for parameter in by_default("abcdef", 2)]
    [False, True, True, False, True, True]
    """
    listed = list(cases)
    spread = {number * len(listed) // count for number in range(count)}
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=() if number in spread else pytest.mark.slow,
        )
        for number, case in enumerate(listed)
    ]
