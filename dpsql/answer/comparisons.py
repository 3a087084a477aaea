"""Comparisons of integers and dates with constants, without DuckDB: what most filters of a dashboard are.

Asking DuckDB about an axis of a few hundred atoms takes most of a millisecond, nearly all of it overhead. A filter
that is a comparison of an INTEGER-like or DATE column with a constant means the same in numpy; all else is left to
DuckDB, whose semantics the SQL has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.answer.block import Predicate
from dpsql.release import Release
from dpsql.release.format import MISSING

BoolArray = npt.NDArray[np.bool_]

_NUMBER = r"-?\d{1,18}"
_DAY = r"(?:CAST\('\d{4}-\d\d-\d\d' AS DATE\)|'\d{4}-\d\d-\d\d')"
_COMPARED = re.compile(rf"dp_c(\d+) (<=|>=|<>|<|>|=) ({_NUMBER}|{_DAY})")
_BETWEEN = re.compile(rf"dp_c(\d+) BETWEEN ({_NUMBER}|{_DAY}) AND ({_NUMBER}|{_DAY})")
_INTEGERS = frozenset(("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "=": np.equal, "<>": np.not_equal,
}  # fmt: skip


def atoms_that_hold(
    release: Release, axis: int, columns: Sequence[tuple[int, str]], filters: Sequence[Predicate], inner: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]] | None:
    """Leaf and weight of every atom that meets all filters.

    Args:
        release: an open release.
        axis: id of an atomic axis.
        columns: placeholder number -> column name in the axis table.
        filters: predicates over these columns.
        inner: whether the MISSING leaf is left out.

    Returns:
        (leaf, weight) of the atoms that hold, or None where a filter is more than a comparison.
    """
    names, types = dict(columns), {column.name: column.type for column in release.axes[axis].columns}
    compared = [_parsed(each.expression.sql, names, types) for each in filters]
    if any(each is None for each in compared):
        return None
    atoms = release.atoms(axis)
    hold = np.ones(len(atoms["leaf"]), np.bool_)
    if inner:
        hold &= atoms["kind"] != MISSING
    for predicate, parts in zip(filters, compared, strict=True):
        truth = np.ones(len(hold), np.bool_)
        for name, operator, constant in parts or ():
            truth &= _true(atoms[name], operator, constant)
        hold &= ~truth if predicate.negated else truth
    return np.asarray(atoms["leaf"][hold], np.int64), np.asarray(atoms["weight"][hold], np.float64)


def _true(values: Any, operator: str, constant: Any) -> BoolArray:
    """Where the comparison is true; NULL makes it unknown, which is not true."""
    found: BoolArray = np.ma.filled(_OPERATORS[operator](values, constant), False).astype(np.bool_)
    return found


def _parsed(sql: str, names: dict[int, str], types: dict[str, str]) -> list[tuple[str, str, Any]] | None:
    """(column, operator, constant) of comparisons that must all be true, or None for anything else."""
    if match := _COMPARED.fullmatch(sql):
        number, pairs = int(match[1]), [(match[2], match[3])]
    elif match := _BETWEEN.fullmatch(sql):
        number, pairs = int(match[1]), [(">=", match[2]), ("<=", match[3])]
    else:
        return None
    name = names[number]
    constants = [_constant(text, types[name]) for _, text in pairs]
    if any(constant is None for constant in constants):
        return None
    return [(name, operator, constant) for (operator, _), constant in zip(pairs, constants, strict=True)]


def _constant(text: str, kind: str) -> Any:
    """The constant in numpy, or None where its comparison with such a column is DuckDB's to decide."""
    if kind in _INTEGERS and "'" not in text:
        return int(text)
    if kind == "DATE" and "'" in text:
        try:
            return np.datetime64(text.split("'")[1], "D")
        except ValueError:  # such as the 30th of February, which DuckDB refuses with its own words
            return None
    return None
