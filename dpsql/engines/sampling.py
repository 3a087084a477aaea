"""At most tau rows of each unit: systematic sampling over the unit's own rows, in integers.

A unit's n placed rows are sorted by all that any statistic reads of them and numbered i = 1 .. n. Row i is kept if

    n <= tau   or   (i tau + r) mod n < tau,      r = h n div P

h in [0, P) is a cubic polynomial of the unit's key modulo the prime P = 2^31 - 1, its coefficients drawn for the
release. Sorting needs one integer a row, and no row is hashed: about a quarter of the time that a keyed hash of the
row's text takes.

| here | there | unit |
|---|---|---|
| `hash_sql` | h | below P |
| `offset` | r | below n |
| `is_kept` | the condition above | - |

**Privacy**: for every r in [0, n) exactly min(n, tau) rows are kept: i is kept iff floor((i tau + r) / n) exceeds
floor(((i - 1) tau + r) / n), and the sum over i telescopes to floor((n tau + r) / n) - floor(r / n) = tau. Which ones
follows from the unit's rows and the coefficients alone; rows of equal p are interchangeable, so ties change no cell.
The hash makes the choice even; the bound does not rest on it.
**Source**: docs/method/rows.md, "At most tau rows of a unit".
"""

from __future__ import annotations

from dpsql.engines.dialect import Dialect
from dpsql.engines.values import INTEGERS

PRIME = (1 << 31) - 1
WORDS = 6
"""Coefficients: the cubic's four, and one each for what is left of wide keys and for their sign."""


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


def hash_sql(unit: str, kind: str | None, c: tuple[int, ...], dialect: Dialect) -> str:
    """SQL of h, at least 0 and below P, for a unit's key.

    Args:
        unit: SQL of the key, not NULL.
        kind: its type; a key that is no integer goes by 28 bits of the MD5 of the secret and its text.
        c: the coefficients.
        dialect: of the engine.
    """

    def mod(value: str) -> str:
        return f"({dialect.remainder(value, str(PRIME))})"

    def cubic(x: str, c0: str) -> str:
        quadratic = mod(f"{c[3]} * ({x}) + {c[2]}")
        return mod(f"{mod(f'{quadratic} * ({x}) + {c[1]}')} * ({x}) + {c0}")

    if kind not in INTEGERS:
        digest = f"substr(md5('{c[4]} {c[5]} ' || {dialect.text(unit)}), 1, 7)"
        return cubic(dialect.number(digest), str(c[0]))
    # % keeps the sign; what is left above P, and the sign, must not make two units one. The quotient goes towards 0
    # by way of (x - x % P) / P; a part of it is taken mod P before anything is multiplied. Most keys need none of it.
    x = mod(f"CAST({mod(unit)} AS BIGINT) + {PRIME}")
    quotient = f"CAST({mod(dialect.quotient(f'abs({unit} - {mod(unit)})', str(PRIME)))} AS BIGINT)"
    sign = f"CASE WHEN {unit} < 0 THEN {c[5]} ELSE 0 END"
    wide = cubic(x, mod(f"{c[0]} + {mod(f'{quotient} * {c[4]}')} + {sign}"))
    narrow = cubic(f"CAST({unit} AS BIGINT)", str(c[0]))
    return f"CASE WHEN {unit} >= 0 AND {unit} < {PRIME} THEN {narrow} ELSE {wide} END"


def is_kept(tau: int, r: str, dialect: Dialect) -> str:
    """The condition over the columns `i` and `n`, and r."""
    return f"n <= {tau} OR {dialect.remainder(f'i * {tau} + {r}', 'n')} < {tau}"


def offset(h: str, dialect: Dialect) -> str:
    """SQL of r, at least 0 and below `n`."""
    return dialect.quotient(f"({h}) * n", str(PRIME))
