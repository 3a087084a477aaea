"""Words of a name, and lists of words that identify tables and columns."""

from __future__ import annotations

import re


def words(name: str) -> frozenset[str]:
    """The words of a name in small letters, plurals as singulars.

    >>> sorted(words("num_cars_owned")), sorted(words("SupportRepId")), sorted(words("c_phone"))
    (['car', 'num', 'owned'], ['id', 'rep', 'support'], ['c', 'phone'])
    """
    fragments = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return frozenset(word.lower().removesuffix("s") if len(word) > 3 else word.lower() for word in fragments)


NAMES = words("id key no number nr code zip uuid sku isbn uid iban serial")
"""What numbers or names a thing and measures nothing."""


def is_name(named: frozenset[str]) -> bool:
    """True if a column says what people or things are called: name, lname, FirstName."""
    return any(word.endswith("name") for word in named)


TEXTS = words(
    "phone fax email mail address street url comment note description remark text firstname lastname surname"
)
"""What people write as they like."""

GRADES = words(
    "type status flag fl class category group level rank grade gender sex race year month day week quarter hour zip "
    "vendor payment marital hand vip region zone stage phase version priority score"
)
"""Numbers that stand for something, and add up to nothing."""

AMOUNTS = words(
    "amount sales revenue total cost fare quantity qty profit spend income value units purchase paid hours "
    "salary wage fee tip tax payment count attendance"
)
"""Numbers that are summed first."""

SERVED = words(
    "customer client user person people patient member student subscriber passenger household buyer visitor shopper "
    "respondent participant citizen rider guest subject borrower resident consumer player applicant adult individual"
)
"""People whom somebody serves."""

STAFF = words("employee staff driver teacher agent physician doctor worker salesperson")
"""People who serve them."""

TRAITS = words(
    "birthdate birthday birth dob age gender sex race ethnicity marital income education occupation hand religion "
    "nationality children"
)
"""What only people have."""

EVENTS = words(
    "order invoice purchase transaction visit trip claim session booking ticket account payment click sale event "
    "admission prescription loan rental subscription contract response review post message"
)
"""What people did: rows that are as private as they are."""
