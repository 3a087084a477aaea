"""An aggregate block: one SELECT over a fact table and the dimensions joined to it, free of parser types."""

from __future__ import annotations

from dataclasses import dataclass, field

from dpsql.answer.terms import ColumnRef, Condition, Expression
from dpsql.answer.uncertainty.forms import Value


@dataclass(frozen=True)
class Block:
    """One aggregate block.

    Args:
        root: the table whose rows are counted.
        joins: the path of each joined dimension; an inner join is a condition of `where`.
        columns: what the placeholders dp_c0, dp_c1, .. stand for.
        where: which rows count.
        groups: GROUP BY expressions, in order; keys are named k0, k1, ..
        values: aggregates, in order; named v0, v1, ..
        span: where it stands in the statement.
        listing: True for a domain list (no aggregate at all): answered from the catalog.
        tables: what it reads.
        release: the release that the statement names for it, in lower case; empty where any may answer.
    """

    root: str
    joins: tuple[tuple[str, ...], ...]
    columns: tuple[ColumnRef, ...]
    where: Condition
    groups: tuple[Expression, ...]
    values: tuple[Value, ...]
    span: tuple[int, int] | None = field(default=None, compare=False)
    listing: bool = False
    tables: tuple[str, ...] = field(default=())
    release: str = ""
