"""One value, one form: SQL that carries a key or a column from one DuckDB type to another without changing its value.

A person's number may come as BIGINT 7 today, as DOUBLE 7.0 tomorrow (one missing number makes pandas write floats) and
as text 00007 from a CSV file. Compared as text these are three people. So a column is carried into one type:

| from \\ to | integer               | decimal              | float          | text | time | the same other type |
|-----------|-----------------------|----------------------|----------------|------|------|---------------------|
| integer   | itself                | itself               | below 2^53     | no   | no   | no                  |
| decimal   | if whole              | if its digits fit    | if whole, below 2^53 | no   | no   | no                  |
| float     | if whole, below 2^53  | if whole, below 2^53 | itself, below 2^53 | no   | no   | no                  |
| text      | whole numbers: 7, +7, 007, 7.0 | plain digits | plain digits  | yes  | ISO  | as it is written    |
| time      | no                    | no                   | no             | no   | yes  | no                  |

"no" is refused by type, before a row is read. What cannot be carried row by row becomes NULL: it equals nothing. A
float of 2^53 or more may be a rounded integer, and names nobody.

**Privacy**: every cast looks at one value and can raise no error.
"""

from __future__ import annotations

import re

INTEGERS = frozenset(
    (
        "TINYINT",
        "SMALLINT",
        "INTEGER",
        "BIGINT",
        "HUGEINT",
        "UTINYINT",
        "USMALLINT",
        "UINTEGER",
        "UBIGINT",
        "UHUGEINT",
    )
)
FLOATS = frozenset(("FLOAT", "DOUBLE"))
TIMES = frozenset(
    ("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP WITH TIME ZONE")
)
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_LARGEST = 1 << 53
_WHOLE = "[+-]?[0-9]+([.]0*)?"
_PLAIN = "[+-]?[0-9]+([.][0-9]*)?"


def family(kind: str) -> str:
    """What kind of values a DuckDB type holds: integer, decimal, float, text, time, or the type itself.

    >>> family("UBIGINT"), family("DECIMAL(9,0)"), family("DECIMAL(9,2)"), family("ENUM('a')"), family("UUID")
    ('integer', 'integer', 'decimal', 'text', 'UUID')
    """
    digits = _DECIMAL.fullmatch(kind)
    if kind in INTEGERS or (digits and digits[2] == "0"):
        return "integer"
    if digits:
        return "decimal"
    if kind in FLOATS:
        return "float"
    if kind == "VARCHAR" or kind.startswith("ENUM("):
        return "text"
    return "time" if kind in TIMES else kind


def widest(kind: str) -> str:
    """The type that holds every value of a type's family (decimals: of its scale).

    >>> widest("SMALLINT"), widest("DECIMAL(9,2)"), widest("FLOAT"), widest("DATE"), widest("UUID")
    ('HUGEINT', 'DECIMAL(38,2)', 'DOUBLE', 'TIMESTAMP', 'UUID')
    """
    whole = {"integer": "HUGEINT", "float": "DOUBLE", "text": "VARCHAR", "time": "TIMESTAMP"}
    digits = _DECIMAL.fullmatch(kind)
    return whole.get(family(kind)) or (f"DECIMAL(38,{digits[2]})" if digits else kind)


def exact_cast(value: str, own: str, target: str) -> str | None:
    """SQL for the same value in another type, NULL on rows where there is none.

    Args:
        value: SQL of a column.
        own: its DuckDB type.
        target: the DuckDB type wanted.

    Returns:
        The expression, or None where no value of one type stands for one of the other.

    >>> exact_cast("id", "UUID", "BIGINT") is None, exact_cast("id", "BIGINT", "BIGINT")
    (True, 'id')
    """
    here, there = family(own), family(target)
    if own == target and here != "float":
        return value
    text = f"trim(CAST({value} AS VARCHAR), E' \\t\\r\\n')"
    if here == "float" and there in ("integer", "decimal"):
        # by way of an integer: DuckDB multiplies a float by 10^scale in floating point
        whole = f"TRY_CAST(TRY_CAST({value} AS HUGEINT) AS {target})"
        return f"CASE WHEN {_small(value)} AND {value} = trunc({value}) THEN {whole} END"
    if there == "integer" and here == "integer":
        return f"TRY_CAST({value} AS {target})"
    if there == "integer" and here in ("decimal", "text"):
        return f"CASE WHEN regexp_full_match({text}, '{_WHOLE}') THEN TRY_CAST({text} AS {target}) END"
    if there == "decimal" and here in ("integer", "decimal", "text"):
        digits = _DECIMAL.fullmatch(target)
        fits = f"[+-]?[0-9]+([.][0-9]{{0,{digits[2] if digits else 0}}}0*)?"
        return f"CASE WHEN regexp_full_match({text}, '{fits}') THEN TRY_CAST({text} AS {target}) END"
    if there == "float" and here in ("integer", "decimal", "float"):
        whole = f" AND {value} = trunc({value})" if here == "decimal" else ""
        # adding zero makes -0.0 and 0.0 one value
        return f"CASE WHEN {_small(value)}{whole} THEN CAST({value} AS {target}) + 0 END"
    if there == "float" and here == "text":
        number = f"CASE WHEN regexp_full_match({text}, '{_PLAIN}') THEN TRY_CAST({text} AS {target}) END"
        return f"CASE WHEN {_small(number)} THEN {number} + 0 END"
    if there == "text" and here == "text":
        return f"CAST({value} AS {target})"
    if there == "time" and here == "time":
        return f"TRY_CAST({value} AS {target})"
    return f"TRY_CAST({text} AS {target})" if here == "text" and there not in ("text", "BOOLEAN") else None


def _small(value: str) -> str:
    """Whether a number is finite and so small that no float rounds it to a whole number (NaN is above all)."""
    return f"({value} > -{_LARGEST} AND {value} < {_LARGEST})"
