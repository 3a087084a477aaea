"""From what a device stores to rows of leaves: join public tables, then look values up.

A plan's axis says how a value becomes a leaf: by `values` (an ordered list), by `starts` (the first unit of each
bin), by `keys` (public rows), or by `lower` and `width` (integer bins). `null_leaf` and `other_leaf`
take what is absent or outside; without them it is clamped.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from dpsql.client.device import Row
from dpsql.client.plan import Plan
from dpsql.errors import DataError

Record = Mapping[str, Any]


def join(facts: Sequence[Record], public: Mapping[Any, Record], key: str) -> list[dict[str, Any]]:
    """Join own records with a public dimension on the device; an unknown key adds nothing.

    Example:
        >>> join([{"product": 7, "amount": 3}], {7: {"price": 20}}, "product")
        [{'product': 7, 'amount': 3, 'price': 20}]
    """
    return [{**fact, **public.get(fact.get(key), {})} for fact in facts]


def leaf_of(axis: Mapping[str, Any], value: object) -> int:
    """Look up the leaf of a value.

    Args:
        axis: one axis of a plan.
        value: what the device holds, None for absent.

    Returns:
        The leaf.

    Raises:
        DataError: if the axis has no leaf for it.
    """
    if value is None:
        return _special(axis, "null_leaf")
    if "values" in axis:
        values = axis["values"]
        return int(values.index(value)) if value in values else _special(axis, "other_leaf")
    if "keys" in axis:
        found = axis["keys"].get(str(value))
        return int(found) if found is not None else _special(axis, "missing_leaf")
    if "starts" in axis:
        return _ordered_leaf(axis, value)
    if not isinstance(value, int | float):
        raise DataError(f"axis {axis['name']} takes numbers")
    bins = axis["leaves"] - sum(axis.get(k) is not None for k in ("null_leaf", "missing_leaf", "other_leaf"))
    leaf = int((value - axis.get("lower", 0)) // axis.get("width", 1))
    if 0 <= leaf < bins:
        return leaf
    if axis.get("other_leaf") is not None:
        return int(axis["other_leaf"])
    return int(min(max(leaf, 0), bins - 1))


def _ordered_leaf(axis: Mapping[str, Any], value: object) -> int:
    """Bins by their first unit: dates count days from 1970, numbers count steps of the declared scale."""
    if isinstance(value, datetime.date):
        unit = value.toordinal() - datetime.date(1970, 1, 1).toordinal()
    else:
        unit = round(Fraction(str(value)) * 10 ** axis.get("scale", 0))
    starts = axis["starts"]
    if not starts[0] <= unit <= axis["upper"]:
        return _special(axis, "other_leaf")
    return bisect_right(starts, unit) - 1


def to_rows(plan: Plan, records: Sequence[Record]) -> list[Row]:
    """Turn joined records into rows; measures are rounded to their declared scale."""
    rows = []
    for record in records:
        leaves = tuple(leaf_of(axis, record.get(axis["name"])) for axis in plan.axes)
        measures = tuple(round(Fraction(str(record[m["name"]])) * 10 ** m["scale"]) for m in plan.measures)
        rows.append(Row(leaves, measures))
    return rows


def _special(axis: Mapping[str, Any], kind: str) -> int:
    leaf = axis.get(kind)
    if leaf is None:
        raise DataError(f"axis {axis['name']} has no {kind}", hint="leave the question out")
    return int(leaf)
