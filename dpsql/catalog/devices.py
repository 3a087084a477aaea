"""Catalog entry of a column that only people's devices know: each reports it once."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from dpsql.catalog.base import Exact, Model, OneOf


class ErrorBar(NamedTuple):
    """Source of the row structure of people behind intervals of a reported column.

    Args:
        name: the catalog's word.
        share: the part of a table's budget that it takes; nothing where they allow for the most.
    """

    name: str
    share: Fraction


SQUARES, BOUND = ErrorBar("squares", Fraction(3, 100)), ErrorBar("bound", Fraction(0))


NonresponseWord = Literal["respondents", "at_random"]


class Nonresponse(NamedTuple):
    """Assumption of intervals about people who did not report.

    Args:
        name: the catalog's word.
        sampled: whether who reported is one draw among others.
        note: what readers of an answer should know.
    """

    name: NonresponseWord
    sampled: bool
    note: str


RESPONDENTS = Nonresponse("respondents", False, "")
AT_RANDOM = Nonresponse("at_random", True, "; error bars treat these as a random sample of each box's people")
NONRESPONSES = {nonresponse.name: nonresponse for nonresponse in (RESPONDENTS, AT_RANDOM)}


class Reported(Model):
    """A column that only people's devices know: each reports it once, through a channel.

    **Privacy**: `epsilon` is what one report costs its person towards the curator; the release pays its own.
    """

    epsilon: Exact = Field(description="of one report, towards the curator")
    mechanism: Literal["auto", "grr", "design", "tree"] = Field(
        "auto", description="the channel; auto: least variance of ranges, or of single values of categories"
    )
    collection: str = Field(min_length=1, description="its name; a device answers it once")
    error_bar: Annotated[ErrorBar, OneOf(SQUARES, BOUND)] = Field(
        SQUARES,
        description="squares: 3% of the views' budget measures how rows of one person add up; bound: nothing is spent",
    )

    nonresponse: Annotated[Nonresponse, OneOf(RESPONDENTS, AT_RANDOM)] = Field(
        RESPONDENTS,
        description="respondents: bars are about those who reported; at_random: others might have, by chance",
    )

    @model_validator(mode="after")
    def _affordable(self) -> Self:
        if not 0 < self.epsilon <= 16:
            raise ValueError("devices refuse an `epsilon` that is not above 0 and at most 16")
        return self
