"""Promises of a release in sentences for people, the joint one of several, and its rule of small numbers.

Noise of one release is independent of every other's, unless both were made of one collection's reports.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from fractions import Fraction

from dpsql.budget import NEIGHBOURS
from dpsql.errors import InterfaceError, ReleaseError
from dpsql.release.format import Meta, Promise

CHANGES = {
    "add_remove": "adding or removing everything that one {unit} owns",
    "replace_one": "replacing everything that one {unit} owns",
}
VOUCHED = (
    "The curator vouches that each row of {tables} follows from rows of one unit and from public facts: the SQL of "
    "these tables was not checked (trusted: true). If it does not, nothing is promised."
)
FOUND = (
    " The same draws are Gaussian differentially private with mu^2 = {mu2} but for {delta}, at every epsilon; half of "
    "that is the chance, at most, that a key is shown which one unit alone holds. For groups of k units the general "
    "rule holds: k epsilon, and delta (exp(k epsilon) - 1) / (exp(epsilon) - 1)."
)
RULE = (
    "Readers show no number of fewer than {} people by its noisy estimate (min_people). Whoever opens the file sees "
    "every noisy cell, and no privacy claim rests on this rule."
)
FREE = "Questions cost nothing: the budget was spent once, when the release was made."


def promise_words(promise: Promise) -> list[str]:
    """Promise in one sentence, and what the curator vouches for in another.

    >>> promise_words(Promise("person.id", "add_remove", "1/2"))[0][-51:]
    'by a factor of at most exp(epsilon): epsilon = 0.5.'
    >>> found = Promise("person.id", "add_remove", "1", delta="1/100000", mu2="1/20", key_delta="1/1000000")
    >>> words = promise_words(found)[0]
    >>> "mu^2 = 0.05 but for 1e-06, at every epsilon" in words, "zero-concentrated" in words
    (True, False)
    """
    change = CHANGES[promise.neighbours].format(unit=promise.unit)
    start = f"Whatever is computed from this release, {change} changes the chance p of any outcome"
    epsilon, delta = short(promise.epsilon), short(promise.delta)
    vouched = [VOUCHED.format(tables=", ".join(promise.vouched))] if promise.vouched else []
    if delta == "0":
        return [f"{start} by a factor of at most exp(epsilon): epsilon = {epsilon}.", *vouched]
    words = f"{start} to at most exp(epsilon) p + delta: epsilon = {epsilon}, delta = {delta}."
    if promise.mu2 is not None and has_key_rounds(promise):
        words += FOUND.format(mu2=short(promise.mu2), delta=short(promise.key_delta))
    elif promise.mu2 is not None:
        words += (
            f" The same draws are Gaussian differentially private with mu^2 = {short(promise.mu2)}, and "
            f"zero-concentrated with rho = {short(Fraction(promise.mu2) / 2)}; an epsilon at every other delta follows."
        )
    return [words, *vouched]


def has_key_rounds(promise: Promise) -> bool:
    """True if private keys were sought: a part of the losses is a delta that no curve holds, at any order."""
    return Fraction(promise.key_delta or 0) > 0


def short(amount: object) -> str:
    """A budget, which meta keeps as a fraction in text, in six significant digits.

    >>> short("2251799813685249/2251799813685248"), short("1/1000000")
    ('1', '1e-06')
    """
    return f"{float(Fraction(str(amount))):.6g}"


ROW = "row"
REPLACE_ONE = "replace_one"


def independent(metas: Sequence[Meta]) -> bool:
    """True if no two releases share a draw of noise: different releases, and no two of one collection's reports.

    A device answers a collection once, so whatever is made of its reports, under whichever plan, shares their noise.
    """
    return len({_draw(meta) for meta in metas}) == len(metas)


def _draw(meta: Meta) -> str:
    """Identity of the draw behind a release: the release itself, or its collection."""
    return meta.release_id if meta.local is None else meta.local.collection


def promise_together(metas: Sequence[Meta]) -> dict[str, str] | None:
    """Promise to somebody who is in all releases: epsilons for replacing her rows, added up.

    A release that is open twice, and all that is made of one collection's reports, were drawn once and cost once.

    Args:
        metas: the releases' `meta` tables; adding or removing a person counts twice when replacing one.

    Returns:
        Neighbours, unit and epsilon, or None where a release's promise is not a pure epsilon, or where the releases
        protect different units. What is promised to a person holds for each of her rows, not the other way round.
    """
    costs: dict[str, Fraction] = {}
    units = set()
    for meta in metas:
        promise = meta.privacy
        if Fraction(promise.delta) > 0:
            return None
        moves = NEIGHBOURS[REPLACE_ONE].moves, NEIGHBOURS[promise.neighbours].moves
        cost = Fraction(*moves) * Fraction(promise.epsilon)
        costs[_draw(meta)] = max(cost, costs.get(_draw(meta), cost))
        if meta.local is None:  # a report is all that a device says about its person, whatever it is called
            units.add(promise.unit)
    if len(units - {ROW}) > 1:
        return None
    unit = ROW if ROW in units else min(units, default="person")
    return {"neighbours": REPLACE_ONE, "unit": unit, "epsilon": str(sum(costs.values()))}


def stated_min_people(meta: Meta) -> int:
    """The catalog's number, without reading the whole catalog.

    Raises:
        ReleaseError: it is none.
    """
    privacy = meta.catalog.get("privacy")
    stated = privacy.get("min_people", 0) if isinstance(privacy, dict) else 0
    if not isinstance(stated, int):
        raise ReleaseError("min_people of the release is no whole number", hint="ask its curator")
    return stated


MIN_PEOPLE = "DPSQL_MIN_PEOPLE"
"""The environment variable by which an interface raises the rule of small numbers of every release that it opens."""


def raised_min_people() -> int:
    """The least `min_people` of this process.

    Raises:
        InterfaceError: the variable is no whole number.
    """
    text = os.environ.get(MIN_PEOPLE, "0")
    if not text.isdecimal():
        raise InterfaceError(f"{MIN_PEOPLE} is a whole number", hint="for instance 11")
    return int(text)
