"""From what a device stores to rows of leaves: join public tables, then look values up.

A plan's axis says how a value becomes a leaf: by `values` (an ordered list), by `starts` (the first unit of each
bin), by `keys` (public rows), or by `lower` and `width` (integer bins). `null_leaf`, `missing_leaf` and `other_leaf`
take what is absent, without a public row, or outside. Integer bins clamp without them; elsewhere such a row is left
out, as a catalog without these leaves says of raw rows too.

**Privacy**: every value, NaN, infinities, NULL and text in the place of numbers included, has a leaf or is left out;
none makes a device fail, which would tell it.
"""

from __future__ import annotations

import datetime
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from numbers import Rational
from typing import Any

from dpsql.client.device import Row
from dpsql.client.plan import Plan

Record = Mapping[str, Any]
LONGEST = 10**1000
FIRST_DAY = datetime.date(1970, 1, 1).toordinal()


def join(facts: Sequence[Record], public: Mapping[Any, Record], key: str) -> list[dict[str, Any]]:
    """Join own records with a public dimension on the device; an unknown key adds nothing.

    Example:
        >>> join([{"product": 7, "amount": 3}], {7: {"price": 20}}, "product")
        [{'product': 7, 'amount': 3, 'price': 20}]
    """
    return [{**fact, **public.get(fact.get(key), {})} for fact in facts]


def leaf_of(axis: Mapping[str, Any], value: object) -> int | None:
    """Look up the leaf of a value.

    Args:
        axis: one axis of a checked plan.
        value: what the device holds, None for absent.

    Returns:
        The leaf, or None where the axis has none for such a value and the row is left out.
    """
    outside: int | None = axis.get("missing_leaf" if "keys" in axis else "other_leaf")
    if value is None:
        absent: int | None = axis.get("null_leaf")
        return absent if absent is not None else outside
    if "values" in axis:
        text, values = _text(value), axis["values"]
        return int(values.index(text)) if text in values else outside
    if "keys" in axis:
        found = axis["keys"].get(_text(value))
        return outside if found is None else int(found)
    return _binned(axis, value) if "starts" in axis else _even_bin(axis, value)


def units(value: object, scale: int, lower: int, upper: int) -> int | None:
    """A number in steps of 10^-scale, rounded half away from zero and cut to lower .. upper; None if it is no number.

    Example:
        >>> units(2.5, 0, 0, 9), units("-0.25", 1, -9, 9), units(float("inf"), 0, 0, 9), units("x", 0, 0, 9)
        (3, -3, 9, None)
    """
    if isinstance(value, Rational):
        top, bottom = int(value.numerator) * 10**scale, int(value.denominator)
        near: int = (2 * abs(top) + bottom) // (2 * bottom)
        return min(max(near if top >= 0 else -near, lower), upper)
    with localcontext() as context:
        context.prec = 60
        try:
            number = Decimal(str(value))
        except InvalidOperation:
            return None
        step = Decimal(1).scaleb(-scale)
        if number.is_nan():
            return None
        if number <= lower * step or number >= upper * step:
            return lower if number <= lower * step else upper
        return int((number / step).to_integral_value(ROUND_HALF_UP))


def to_rows(plan: Plan, records: Sequence[Record]) -> list[Row]:
    """Turn joined records into rows.

    Args:
        plan: a checked plan.
        records: by the names of the plan's axes and measures; what is absent is NULL.

    Returns:
        One row a record that has a leaf on every axis. Measures are integers at their declared scale, within their
        bounds; one that is absent or no number counts as 0, or as the bound nearest to it.
    """
    rows = []
    for record in records:
        leaves = [leaf_of(axis, record.get(axis["name"])) for axis in plan.axes]
        placed = tuple(leaf for leaf in leaves if leaf is not None)
        if len(placed) == len(leaves):
            rows.append(Row(placed, tuple(_amount(m, record.get(m["name"])) for m in plan.measures)))
    return rows


def _text(value: object) -> str | None:
    """A value as catalogs write it; None for integers longer than any of them, which Python does not write out."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Rational) and max(abs(int(value.numerator)), int(value.denominator)) > LONGEST:
        return None
    return str(value)


def _amount(measure: Mapping[str, Any], value: object) -> int:
    lower, upper = int(measure["lower"]), int(measure["upper"])
    found = units(value, int(measure["scale"]), lower, upper)
    return min(max(0, lower), upper) if found is None else found


def _binned(axis: Mapping[str, Any], value: object) -> int | None:
    """Bins by their first unit: dates count days from 1970, numbers count steps of the declared scale."""
    starts, upper = axis["starts"], axis["upper"]
    if isinstance(value, datetime.date):
        unit: int | None = value.toordinal() - FIRST_DAY
    else:
        unit = units(value, axis.get("scale", 0), starts[0] - 1, upper + 1)
    if unit is None or not starts[0] <= unit <= upper:
        other: int | None = axis.get("other_leaf")
        return other
    return bisect_right(starts, unit) - 1


def _even_bin(axis: Mapping[str, Any], value: object) -> int | None:
    """Bins of one width; what is outside goes to its own leaf, or to the nearest bin."""
    outside: int | None = axis.get("other_leaf")
    if not isinstance(value, int | float) or value != value:
        return outside
    bins: int = axis["leaves"] - sum(
        axis.get(k) is not None for k in ("null_leaf", "missing_leaf", "other_leaf")
    )
    lower, width = axis.get("lower", 0), axis.get("width", 1)
    leaf = int((min(max(value, lower - 1), lower + bins * width) - lower) // width)
    if outside is not None and not 0 <= leaf < bins:
        return int(outside)
    return min(max(leaf, 0), bins - 1)
