"""A measure as bounded integers, row by row, in SQL that has an answer for every input.

Values are clamped, scaled to the declared decimal places and cast to BIGINT before anything is added
up. NULL and NaN stay NULL; infinities and numbers too large for DECIMAL go to the bound on their side.
`least(greatest(x, lower), upper)` would have turned NaN and NULL into a bound.

**Privacy**: `center` fixes the sensitivity: |x - mid| <= max(upper - mid, mid - lower) for every row.
"""

from __future__ import annotations

from dataclasses import dataclass

EXACT_DIGITS = 9
"""Decimal places kept of text and decimals before rounding; the catalog allows no finer scale."""


@dataclass(frozen=True)
class Bounds:
    """A measure's public bounds in integers of 10^-scale, both inclusive."""

    lower: int
    upper: int
    scale: int

    @property
    def mid(self) -> int:
        """The centre that sums are published around.

        >>> Bounds(0, 5, 0).mid
        2
        """
        return (self.lower + self.upper) // 2

    @property
    def reach(self) -> int:
        """The most that a row's centred value can be, at least 1.

        >>> Bounds(0, 5, 0).reach
        3
        """
        return max(self.upper - self.mid, self.mid - self.lower, 1)


def measure_sql(value: str, bounds: Bounds) -> str:
    """SQL for the clamped integer of a raw value, NULL where it is NULL or NaN.

    Args:
        value: SQL expression of any type.
        bounds: the measure's bounds.

    Returns:
        A BIGINT expression within the bounds.
    """
    scale = 10**bounds.scale
    near = f"TRY_CAST({value} AS DOUBLE)"
    exact = f"TRY_CAST({value} AS DECIMAL(38, {EXACT_DIGITS}))"
    is_float = f"typeof({value}) IN ('DOUBLE', 'FLOAT')"
    # A float is rounded after scaling in floating point, since 4.35 is 4.3499.. in binary; others are exact.
    from_float = f"CAST(ROUND({near} * {scale}) AS BIGINT)"
    from_exact = f"CAST(ROUND({exact}, {bounds.scale}) * {scale} AS BIGINT)"
    low, high = f"{bounds.lower} / {scale}::DOUBLE", f"{bounds.upper} / {scale}::DOUBLE"
    return (
        f"CASE WHEN {near} IS NULL OR isnan({near}) THEN NULL "
        f"WHEN {near} <= {low} THEN {bounds.lower} WHEN {near} >= {high} THEN {bounds.upper} "
        f"WHEN {is_float} THEN {from_float} ELSE {from_exact} END"
    )
