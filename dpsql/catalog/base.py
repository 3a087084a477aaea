"""The base of every catalog model: frozen, no unknown keys, and errors that say what to write instead."""

from __future__ import annotations

import difflib
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator


class Problem(ValueError):
    """Something wrong at a key path that lies below or beside the model that found it.

    Args:
        path: the keys that lead to the place, from the top of the catalog.
        message: what is wrong and what to write.
    """

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path


def nearest(word: str, known: tuple[str, ...]) -> str:
    """The hint that closes an error about an unknown name.

    Args:
        word: the name as written.
        known: the names that would have been right.

    Returns:
        ``did you mean `x`?`` where one is near, otherwise the list of what there is.

    >>> nearest("lwer", ("lower", "upper"))
    'did you mean `lower`?'
    >>> nearest("zzz", ("lower", "upper"))
    'write one of `lower`, `upper`'
    """
    folded = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), list(folded), n=1, cutoff=0.6)
    if close:
        return f"did you mean `{folded[close[0]]}`?"
    if not known:
        return "there are none"
    return "write one of " + ", ".join(f"`{name}`" for name in known[:12])


class Model(BaseModel):
    """A frozen value; an unknown key is refused with the nearest known one."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, str_max_length=100_000)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        known = tuple(field.alias or name for name, field in cls.model_fields.items())
        accepted = {*known, *cls.model_fields}
        for key in data:
            if key not in accepted:
                raise ValueError(f"unknown key `{key}`; {nearest(str(key), known)}")
        return data
