"""At most tau rows of each unit: systematic sampling over the unit's own rows, in integers.

A unit's n placed rows are sorted by all that any statistic reads of them and numbered i = 1 .. n. Row i is kept if

    n <= tau   or   (i tau + r) mod n < tau,      r = h n div P

h in [0, P) is a cubic polynomial of the unit's key modulo the prime P = 2^31 - 1, its coefficients drawn for the
release. Sorting needs one integer a row (`pack`), and no row is hashed: about a quarter of the time that a keyed hash
of the row's text takes.

| here | there | unit |
|---|---|---|
| `Digit` | one column's place in the packed integer p | - |
| `hash_sql` | h | below P |
| `is_kept` | the condition above | - |

**Privacy**: for every r in [0, n) exactly min(n, tau) rows are kept: i is kept iff floor((i tau + r) / n) exceeds
floor(((i - 1) tau + r) / n), and the sum over i telescopes to floor((n tau + r) / n) - floor(r / n) = tau. Which ones
follows from the unit's rows and the coefficients alone; rows of equal p are interchangeable, so ties change no cell.
The hash makes the choice even; the bound does not rest on it.
**Source**: docs/method/rows.md, "At most tau rows of a unit".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

PRIME = (1 << 31) - 1
WORDS = 6
"""Coefficients: the cubic's four, and one each for what is left of wide keys and for their sign."""

_INTEGERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
)
_HEX_DIGITS = 7
_PACKED = 1 << 62


class Digit(NamedTuple):
    """A column's place in a packed row.

    Args:
        column: its name.
        low: its least value; the digit is the distance from it.
        size: how many values it has; one more stands for NULL.
    """

    column: str
    low: int
    size: int


def coefficients(key: bytes) -> tuple[int, ...]:
    """The hash's coefficients from a release's secret key: those of x, x^2 and x^3 are not 0.

    Args:
        key: at least 24 bytes.

    Example:
        >>> len(coefficients(bytes(32))), coefficients(bytes(32))[1]
        (6, 1)
    """
    words = [int.from_bytes(key[4 * i : 4 * i + 4], "big") for i in range(WORDS)]
    return (words[0] % PRIME, *(1 + word % (PRIME - 1) for word in words[1:]))


def variable(i: int) -> str:
    """The SQL variable of a coefficient."""
    return f"sampling_{i}"


def hash_sql(unit: str, kind: str | None) -> str:
    """SQL of h, at least 0 and below P, for a unit's key.

    Args:
        unit: SQL of the key, not NULL.
        kind: its DuckDB type; a key that is no integer goes by 28 bits of the MD5 of the secret and its text.
    """
    c = [f"getvariable('{variable(i)}')" for i in range(WORDS)]
    if kind in _INTEGERS:
        # % keeps the sign; what is left above P, and the sign, must not make two units one.
        x = f"(CAST({unit} % {PRIME} AS BIGINT) + {PRIME}) % {PRIME}"
        rest = f"CAST(abs({unit} // {PRIME}) % {PRIME} AS BIGINT)"
        sign = f"CASE WHEN {unit} < 0 THEN {c[5]} ELSE 0 END"
        c0 = f"({c[0]} + ({rest} * {c[4]}) % {PRIME} + {sign}) % {PRIME}"
    else:
        text = f"md5({c[4]} || ' ' || {c[5]} || ' ' || CAST({unit} AS VARCHAR))"
        x, c0 = f"CAST('0x' || substr({text}, 1, {_HEX_DIGITS}) AS BIGINT)", c[0]
    return f"(((({c[3]} * ({x}) + {c[2]}) % {PRIME} * ({x}) + {c[1]}) % {PRIME}) * ({x}) + {c0}) % {PRIME}"


def is_kept(tau: int) -> str:
    """The condition over `i`, `n` and `h`."""
    return f"n <= {tau} OR (i * {tau} + h * n // {PRIME}) % n < {tau}"


def pack(digits: Sequence[Digit]) -> str | None:
    """SQL of one BIGINT that holds all columns of a row, or None where 62 bits are too few.

    Example:
        >>> pack([Digit("a0", 0, 3), Digit("m0", -5, 11)])
        '(coalesce(a0::BIGINT - (0), 3)) * 12::BIGINT + coalesce(m0::BIGINT - (-5), 11)'
    """
    if prod(digit.size + 1 for digit in digits) >= _PACKED:
        return None
    packed = ""  # 64 bits throughout: an overflow would stop a publish, and tell of a row
    for column, low, size in digits:
        digit = f"coalesce({column}::BIGINT - ({low}), {size})"
        packed = f"({packed}) * {size + 1}::BIGINT + {digit}" if packed else digit
    return packed or "0::BIGINT"


def unpack(digits: Sequence[Digit]) -> list[str]:
    """SQL of each column from the packed integer `p`.

    Example:
        >>> unpack([Digit("a0", 0, 3), Digit("m0", -5, 11)])
        ['nullif(p // 12 % 4, 3) + (0) AS a0', 'nullif(p // 1 % 12, 11) + (-5) AS m0']
    """
    places = [prod(digit.size + 1 for digit in digits[i + 1 :]) for i in range(len(digits))]
    return [
        f"nullif(p // {place} % {size + 1}, {size}) + ({low}) AS {column}"
        for place, (column, low, size) in zip(places, digits, strict=True)
    ]
