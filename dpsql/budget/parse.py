"""Texts to exact budgets: epsilon, delta, and how a budget is split into shares."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

from dpsql.errors import DataError, InterfaceError, PrivacyError

MAX_EPSILON = 1000  # beyond it nothing is promised; e^1000 to 1 is certainty
_DECIMAL = r"(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][+-]?\d{1,3})?"  # short: 1e999999999 must not be expanded
_NUMBER = re.compile(rf"[+-]?({_DECIMAL}|\d{{1,40}}/\d{{1,40}})", re.ASCII)
_Key = TypeVar("_Key")


def parse_epsilon(text: str | int | Fraction) -> Fraction:
    """An exact epsilon from what a catalog or a command line says.

    Args:
        text: a decimal ("0.1", "1e-2"), a fraction ("1/3"), or an exact number.

    Returns:
        Epsilon as a fraction, 0 < epsilon <= 1000.

    Raises:
        InterfaceError: a float (it is not the number that was written) or another type.
        DataError: not a finite decimal number or fraction.
        PrivacyError: zero, negative, or so large that it promises nothing.

    >>> parse_epsilon("0.1")
    Fraction(1, 10)
    """
    epsilon = _exact("epsilon", text)
    if epsilon <= 0:
        raise PrivacyError("epsilon must be above 0", hint="write a positive number, for instance 1.0")
    if epsilon > MAX_EPSILON:
        raise PrivacyError(
            f"epsilon above {MAX_EPSILON} promises nothing", hint="write a smaller one, for instance 1.0"
        )
    return epsilon


def parse_delta(text: str | int | Fraction) -> Fraction:
    """An exact delta: 0 (pure differential privacy) or a chance of failure below 1.

    Args:
        text: a decimal ("0", "1e-6"), a fraction, or an exact number.

    Returns:
        Delta as a fraction, 0 <= delta < 1.

    Raises:
        InterfaceError: a float or another type.
        DataError: not a finite decimal number or fraction.
        PrivacyError: negative, or 1 and more.

    >>> parse_delta("1e-6")
    Fraction(1, 1000000)
    """
    delta = _exact("delta", text)
    if not 0 <= delta < 1:
        raise PrivacyError("delta must be at least 0 and below 1", hint="write 0, or for instance 1e-6")
    return delta


def share_out(total: Fraction, shares: Mapping[_Key, Fraction], *, whole: bool) -> dict[_Key, Fraction]:
    """Split a budget by exact shares.

    Args:
        total: what there is to split.
        shares: a positive fraction per part.
        whole: True if the shares must add up to exactly 1, False if a rest may stay unspent.

    Returns:
        What each part may spend; with `whole` the parts add up to `total` exactly.

    Raises:
        PrivacyError: a share that is not positive, or a sum that is not 1 (or above 1).

    **Privacy**: the parts compose to at most `total`.

    >>> share_out(Fraction(1), {"count": Fraction("0.55"), "sum": Fraction("0.45")}, whole=True)["sum"]
    Fraction(9, 20)
    """
    if any(share <= 0 for share in shares.values()):
        raise PrivacyError("a share of the budget must be above 0", hint="remove the part or give it a share")
    added = sum(shares.values(), Fraction(0))
    if added > 1 or (whole and added != 1):
        rule = "exactly 1" if whole else "at most 1"
        raise PrivacyError(f"shares add up to {added}, not {rule}", hint="change the shares of this group")
    return {key: total * share for key, share in shares.items()}


def _exact(name: str, text: object) -> Fraction:
    if isinstance(text, float):
        exact = Fraction(text) if text - text == 0 else text  # nan and inf have no fraction
        raise InterfaceError(
            f"{name} came as a float, which is {exact} and not the number that was written",
            hint=f'pass {name} as text, for instance "0.1"',
        )
    if isinstance(text, bool) or not isinstance(text, str | int | Fraction):
        raise InterfaceError(f"{name} must be text or an exact number", hint='write for instance "0.1"')
    if not isinstance(text, str):
        return Fraction(text)
    stripped = text.strip()
    denominator = stripped.partition("/")[2]
    if not _NUMBER.fullmatch(stripped) or (denominator and int(denominator) == 0):
        raise DataError(
            f"{name} {_quoted(text)} is not a finite decimal number or fraction",
            hint='write for instance "0.1" or "1/3"',
        )
    return Fraction(stripped)


def _quoted(text: str) -> str:
    """The text in one line of bounded length."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
