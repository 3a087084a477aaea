"""Promises of a release, in sentences for people."""

from __future__ import annotations

from fractions import Fraction

from dpsql.release.format import Promise

NEIGHBOURS = {
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
    change = NEIGHBOURS[promise.neighbours].format(unit=promise.unit)
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
