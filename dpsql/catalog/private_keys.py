"""Catalog entry of a column whose values nobody listed, and the texts that may be keys.

**Privacy**: `is_key` looks at one value.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from dpsql.catalog.base import Exact, Label, Model, Text

LARGEST_LIST = 65_536
"""Most keys that a list of private values may hold."""

CONTROL = "".join(
    chr(code)
    for first, last in ((0x00, 0x1F), (0x7F, 0x9F), (0x202A, 0x202E), (0x2066, 0x2069))
    for code in range(first, last + 1)
)
"""Characters that no key has: controls, and those that turn the direction of what is printed beside them."""


def is_key(text: str, length: int, other: str) -> bool:
    r"""True if a text may be shown as a key; engines decide the same by `engines.key_weights.key_sql`.

    Args:
        text: of one row.
        length: bytes at most.
        other: the word for what is not shown.

    >>> is_key("tea", 200, "(other)"), is_key("te\na", 200, "(other)"), is_key("", 200, "(other)")
    (True, False, True)
    """
    return len(text.encode()) <= length and text != other and not set(text) & set(CONTROL)


class PrivateKeys(Model):
    """Values that nobody listed: a part of the budget finds those that enough people have, and they become the leaves.

    **Privacy**: shown values were chosen by noisy sums (docs/privacy/keys.md); all others are one leaf, `other`.
    """

    private: Literal[True] = Field(description="written out: the values are private")
    per_unit: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="keys of one unit that weigh; 50, and 1 on an axis of the unit's own and under `unit: row`",
    )
    share: Exact | None = Field(
        None,
        description="share of a release's budget that finds them; 1/10, and 1/4 where `per_unit` is 1; "
        "0 finds none: the leaves are those of `known` and `always`",
    )
    most: int | None = Field(
        None,
        ge=1,
        le=LARGEST_LIST,
        description="most keys shown; default: what the `cells` of its views allow, at most 65536",
    )
    known: Text | None = Field(
        None,
        description="a release of the same lineage: its keys are leaves again, and nothing is spent on them",
    )
    always: tuple[Label, ...] = Field(
        (), description="public values that are leaves whatever the rows contain"
    )
    length: int = Field(200, ge=1, le=10_000, description="bytes of a text; longer ones count as `other`")

    @field_validator("private", mode="before")
    @classmethod
    def _written(cls, value: Any) -> Any:
        if str(value).lower() != "true":
            raise ValueError("write `private: true`, or list the categories")
        return True

    @model_validator(mode="after")
    def _share_fits(self) -> Self:
        if self.share is not None and not 0 <= self.share < 1:
            raise ValueError("`share` is at least 0 and below 1: the views need the rest")
        if self.share == 0 and self.known is None and not self.always:
            raise ValueError("`share: 0` finds no keys: name a release in `known`, or list keys in `always`")
        if len(set(self.always)) != len(self.always):
            raise ValueError("a value is listed twice in `always`; list each once")
        return self

    def check_always(self, kind: str, other: str) -> None:
        """Refuse values of `always` that can be no key.

        Args:
            kind: the column's type.
            other: the word for what is not shown.

        Raises:
            ValueError: one is not.
        """
        for key in self.always:
            number = kind != "string" and re.fullmatch(r"-?[0-9]{1,18}", key)
            if not (number or (kind == "string" and is_key(key, self.length, other))):
                raise ValueError(f"`{key}` in `always` cannot be a key of this column; remove it")


Categories = Annotated[
    Annotated[tuple[Label, ...], Tag("listed")] | Annotated[PrivateKeys, Tag("private")],
    Discriminator(lambda value: "private" if isinstance(value, dict | PrivateKeys) else "listed"),
    BeforeValidator(lambda value: {"private": True} if value == "private" else value),
]
"""Values of a column: a list, or `private`, or how private ones are found."""
