"""Arithmetic on forms: how a value depends on noisy terms, kept as linear combinations and ratios.

A form that cannot be kept (a product of two noisy values, a window, a CASE on one) is None, and its
standard error is NULL: never a wrong number.
"""

from __future__ import annotations

from dpsql.answer.block import Form, Known, Linear, Ratio, Term

ZERO = Linear(())


def constant(value: float) -> Linear:
    """A value without noise."""
    return Linear((), value)


def one(term: Term, weight: float = 1.0) -> Linear:
    """A single term."""
    return Linear(((term, weight),))


def is_constant(form: Form | None) -> bool:
    """Whether the form has no noise at all."""
    return isinstance(form, Linear) and not form.weights


def scaled(form: Linear | Ratio, factor: float) -> Linear | Ratio:
    """factor * form.

    >>> scaled(Linear(((Term("count"), 2.0),), 1.0), 3.0)
    Linear(weights=((Term(measure='count', condition=Always(value=True)), 6.0),), constant=3.0)
    """
    if isinstance(form, Ratio):
        return Ratio(_scaled(form.above, factor), form.below, form.mean)
    return _scaled(form, factor)


def _scaled(form: Linear, factor: float) -> Linear:
    return Linear(tuple((term, weight * factor) for term, weight in form.weights), form.constant * factor)


def _sum(left: Linear, right: Linear, sign: float = 1.0) -> Linear:
    weights = dict(left.weights)
    for term, weight in right.weights:
        weights[term] = weights.get(term, 0.0) + sign * weight
    kept = tuple((term, weight) for term, weight in weights.items() if weight)
    return Linear(kept, left.constant + sign * right.constant)


def added(left: Form | None, right: Form | None, sign: float = 1.0) -> Form | None:
    """left + sign * right, or None."""
    if left is None or right is None:
        return None
    if isinstance(left, Linear) and isinstance(right, Linear):
        return _sum(left, right, sign)
    if isinstance(left, Ratio) and isinstance(right, Linear):
        return _shifted(left, right, sign) if is_constant(right) else None
    if isinstance(left, Linear) and isinstance(right, Ratio):
        return _shifted(scaled_ratio(right, sign), left, 1.0) if is_constant(left) else None
    if isinstance(left, Ratio) and isinstance(right, Ratio) and left.below == right.below:
        return Ratio(_sum(left.above, right.above, sign), left.below, left.mean)
    return None


def scaled_ratio(form: Ratio, factor: float) -> Ratio:
    """factor * ratio."""
    return Ratio(_scaled(form.above, factor), form.below, form.mean)


def _shifted(ratio: Ratio, by: Linear, sign: float) -> Ratio:
    return Ratio(_sum(ratio.above, _scaled(ratio.below, by.constant), sign), ratio.below, ratio.mean)


def multiplied(left: Form | None, right: Form | None) -> Form | None:
    """left * right where one of them is a constant, else None."""
    if left is None or right is None:
        return None
    if isinstance(right, Linear) and is_constant(right) and not isinstance(left, Known):
        return scaled(left, right.constant)
    if isinstance(left, Linear) and is_constant(left) and not isinstance(right, Known):
        return scaled(right, left.constant)
    return None


def divided(left: Form | None, right: Form | None) -> Form | None:
    """left / right: by a constant, or linear by linear."""
    if left is None or right is None:
        return None
    if isinstance(right, Linear) and is_constant(right) and not isinstance(left, Known):
        return scaled(left, 1.0 / right.constant) if right.constant else None
    if isinstance(left, Linear) and isinstance(right, Linear):
        return Ratio(left, right)
    return None
