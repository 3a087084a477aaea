"""Statements that set something for a session: `SET dp_nonnegative = true`, `RESET dp_nonnegative`, `SHOW ..`.

`dp_nonnegative` says which estimates counts are answered from. `dp_min_relative_error` hides groups whose noise
exceeds their values.
`dp_errors` puts the ends of each noisy column's interval beside it. `dp_round = off` shows counts with their noise's
fractions.

Every dialect writes these with words of its own and none has an expression in them, so they are read here and never
reach the parser. Settings of other engines are none of ours: an interface may nod at them or refuse them.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dpsql.errors import ProgrammingError, UnknownName

NONNEGATIVE = "dp_nonnegative"
MIN_RELATIVE_ERROR = "dp_min_relative_error"
ERRORS = "dp_errors"
ROUND = "dp_round"

ON, OFF = frozenset({"true", "on", "yes", "1"}), frozenset({"false", "off", "no", "0"})
RESET = "default"
ALIKE = 0.8
"""From where on another name counts as one of these misspelt."""

Value = bool | float | None
"""What a setting holds; None for how the session began."""


class Setting(NamedTuple):
    """A setting.

    Args:
        field: what of a session it sets.
        takes: what it may be, in words.
        example: one of these.
        read: a word -> its value; ValueError of any other.
        state: its value as it is written, None for how the session began.
        does: what it does, for people.
    """

    field: str
    takes: str
    example: str
    read: Callable[[str], bool | float]
    state: Callable[[Value], str]
    does: Callable[[bool | float], str]


def _switch(word: str) -> bool:
    if word not in ON | OFF:
        raise ValueError(word)
    return word in ON


def _above_zero(word: str) -> float:
    number = float(word)
    if not 0 < number < math.inf:
        raise ValueError(word)
    return number


SETTINGS: Mapping[str, Setting] = {
    NONNEGATIVE: Setting(
        "nonnegative", "true or false", "true", _switch, lambda value: "on" if value else "off",
        lambda value: "counts are their non-negative (biased) estimates where a release has them"
        if value else "estimates are unbiased",
    ),
    MIN_RELATIVE_ERROR: Setting(
        "min_relative_error", "a number above 0", "0.5", _above_zero,
        lambda value: "off" if value is None else f"{value:g}",
        lambda value: "groups whose numbers all have relative errors of this or more are hidden",
    ),
    ERRORS: Setting(
        "errors", "on or off", "on", _switch, lambda value: "on" if value else "off",
        lambda value: "each noisy column x has its interval in x_low and x_high" if value else (
            "answers have the columns of their select list"
        ),
    ),
    ROUND: Setting(
        "rounds", "on or off", "off", _switch, lambda value: "off" if value is False else "on",
        lambda value: "counts are whole numbers" if value else "counts have the fractions of their noise",
    ),
}  # fmt: skip
"""Every setting by its name."""

STATEMENT = re.compile(
    r"""(?:\s+|--[^\n]*|/\*.*?\*/)*+
    (?P<verb>set|pragma|reset|show)\s++ (?:(?P<scope>session|local|global)\s++)? "?(?P<name>\w++)"? \s*+
    (?:(?:=|\bto\b)?\s*+(?P<value>[^\s;]++))? \s*+;?\s*+""",
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)
"""Possessive throughout, so that reading takes linear time whatever is sent."""

CLEAR = re.compile(r"\s*+(?:reset|discard)\s++all\s*+;?\s*+", re.IGNORECASE)


@dataclass(frozen=True)
class Change:
    """One change of the settings by a statement.

    Args:
        verb: SET, RESET or SHOW.
        name: the setting; empty for all of them.
        value: of the setting; None for how the session began, and for SHOW.
    """

    verb: str
    name: str
    value: Value = None


def read_change(text: str) -> Change | None:
    """The change that a statement asks for.

    Args:
        text: one statement.

    Returns:
        The change, or None if it is about something else.

    Raises:
        UnknownName: it names a `dp_` setting that there is not, or misspells one.
        ProgrammingError: the value is none that the setting has, it is meant for more or less than a session, or
            the verb is PRAGMA.

    >>> read_change("SET dp_nonnegative = true")
    Change(verb='SET', name='dp_nonnegative', value=True)
    >>> read_change("SET dp_nonnegative TO off;").value, read_change("SET threads = 4")
    (False, None)
    """
    if CLEAR.fullmatch(text):
        return Change("RESET", "")
    match = STATEMENT.fullmatch(text)
    if match is None:
        return None
    verb, name = match["verb"].upper(), match["name"].lower()
    if name not in SETTINGS:
        near = [
            n for word in (name, f"dp_{name}") for n in difflib.get_close_matches(word, SETTINGS, 1, ALIKE)
        ]
        if near or name.startswith("dp_"):
            hint = f"did you mean {near[0]}?" if near else f"the settings are {', '.join(SETTINGS)}"
            raise UnknownName(f"there is no setting {name}", hint=hint)
        return None
    if verb == "PRAGMA":
        raise ProgrammingError(f"{name} is not a pragma", hint=f"write SET {name} = {SETTINGS[name].example}")
    if (match["scope"] or "session").lower() != "session":
        raise ProgrammingError(
            f"{name} is set for a session", hint=f"write SET {name} = {SETTINGS[name].example}"
        )
    return Change(verb, name, _value(verb, name, match["value"]))


def _value(verb: str, name: str, written: str | None) -> Value:
    if verb in ("RESET", "SHOW"):
        if written:
            raise ProgrammingError(f"{verb} {name} takes no value", hint=f"write {verb} {name}")
        return None
    word = (written or "").strip("'\"").lower()
    if word == RESET:
        return None
    setting = SETTINGS[name]
    try:
        return setting.read(word)
    except ValueError:
        raise ProgrammingError(
            f"{name} is {setting.takes}", hint=f"write SET {name} = {setting.example}"
        ) from None
