"""The clock of a statement, folded once: `CURRENT_DATE`, `NOW()` and others are the moment at which it began, in UTC.

| written | becomes |
|---|---|
| `CURRENT_DATE`, `CURDATE()`, `today()` | `DATE '2026-11-26'` |
| `NOW()`, `CURRENT_TIMESTAMP`, `LOCALTIMESTAMP`, `GETDATE()` | `TIMESTAMP '2026-11-26 11:05:33'` |

Every call of one statement is the same moment, and a note under the answer states it. What is kept of a statement (its
answer, its shape) is not used for the next one that reads the clock.
"""

from __future__ import annotations

from datetime import datetime

from sqlglot import exp

from dpsql.release.request import moment
from dpsql.row_expressions.expression import Node

DATES = (exp.CurrentDate,)
TIMES = (exp.CurrentTimestamp, exp.Localtimestamp, exp.CurrentDatetime)
NAMED_DATES = frozenset({"today", "curdate"})
NAMED_TIMES = frozenset({
    "getdate", "getutcdate", "sysdatetime", "sysutcdatetime", "get_current_timestamp", "transaction_timestamp",
    "statement_timestamp", "clock_timestamp", "sysdate", "now",
})  # fmt: skip


def fold_clock(tree: Node) -> tuple[Node, datetime | None]:
    """Write the moment at which the request began in place of the clock.

    Args:
        tree: a parsed statement; changed in place.

    Returns:
        The statement, and that moment in UTC without its zone; None where it does not read the clock.
    """
    calls = [node for node in tree.walk() if _is_date(node) or _is_time(node)]
    if not calls:
        return tree, None
    now = moment().replace(tzinfo=None, microsecond=0)
    for call in calls:
        value = str(now.date()) if _is_date(call) else str(now)
        literal = exp.cast(exp.Literal.string(value), "DATE" if _is_date(call) else "TIMESTAMP")
        literal.meta["zoned"] = _is_time(call)
        call.replace(literal)
    return tree, now


def _is_date(node: Node) -> bool:
    return isinstance(node, DATES) or _is_called(node, NAMED_DATES)


def _is_time(node: Node) -> bool:
    return isinstance(node, TIMES) or _is_called(node, NAMED_TIMES)


def _is_called(node: Node, names: frozenset[str]) -> bool:
    return isinstance(node, exp.Anonymous) and not node.expressions and str(node.this).lower() in names
