"""An aggregate block: one SELECT over a fact table and the dimensions joined to it, free of parser types."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from dpsql.intervals.forms import Value
from dpsql.planner.terms import ColumnRef, Condition, Expression
from dpsql.release import Release
from dpsql.release.request import current

T = TypeVar("T")


class ShapePlans:
    """Cached plans of blocks of one shape; two threads may compute the same entry twice."""

    def __init__(self) -> None:
        self._worked_out: dict[Hashable, Any] = {}

    def once(self, question: Hashable, release: Release, rule: str | None, make: Callable[[], T]) -> T:
        """Return the cached result for a key, computing it on first use under the same settings and role.

        Args:
            question: which part of the plan.
            release: an open release.
            rule: what the session does with bins that are cut.
            make: works it out.
        """
        request = current()
        role = "" if request is None else request.role
        key = (question, id(release), release.meta.release_id, release.nonnegative, rule, role)
        if key not in self._worked_out:
            self._worked_out[key] = make()
        return cast(T, self._worked_out[key])


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
        never_null: columns whose COUNT is that of all rows, since the catalog calls them never NULL.
        plans: what it shares with other blocks of its shape; None where its statement was read and not filled.
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
    never_null: tuple[str, ...] = ()
    plans: ShapePlans | None = field(default=None, compare=False, repr=False)
