"""MEDIAN and QUANTILE of an axis column, from the axis's cumulative counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsql.answer.block import Block, Known
from dpsql.answer.plan import Plan
from dpsql.answer.schema import Schema
from dpsql.errors import NotSupportedError
from dpsql.release import Release


def axis_quantiles(known: Known, block: Block, plan: Plan, index: tuple[np.ndarray, ...], release: Release,
                   schema: Schema) -> tuple[str, list[Any]]:
    """Quantiles for each group (replaced below)."""
    raise NotSupportedError("quantiles")
