"""Columns of a table as the catalog says them: type, bounds or categories, and cuts, all public facts.

`bin_starts` turns cuts into leaves: the first unit of every leaf of an ordered column. Values that nobody listed
(`categories: private`) are found when a release is published; a `reported` column is known to people's devices alone.

**Privacy**: `is_key` looks at one value.
"""

from __future__ import annotations

import re
from datetime import date, timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from dpsql.catalog import base

ORDERED = ("int", "decimal", "date", "timestamp")
NUMERIC = ("int", "decimal")
CALENDAR = ("minute", "hour", "day", "week", "month", "quarter", "year")
DEFAULT_SCALE = 2
LARGEST_SCALE = 9


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


class Reported(base.Model):
    """A column that only people's devices know: each reports it once, through a channel.

    **Privacy**: `epsilon` is what one report costs its person towards the curator; the release pays its own.
    """

    epsilon: base.Exact = Field(description="of one report, towards the curator")
    mechanism: Literal["auto", "grr", "design", "tree"] = Field(
        "auto", description="the channel; auto: least variance of ranges, or of single values of categories"
    )
    collection: str = Field(min_length=1, description="its name; a device answers it once")
    error_bar: Annotated[ErrorBar, base.OneOf(SQUARES, BOUND)] = Field(
        SQUARES,
        description="squares: 3% of the views' budget measures how rows of one person add up; bound: nothing is spent",
    )

    nonresponse: Annotated[Nonresponse, base.OneOf(RESPONDENTS, AT_RANDOM)] = Field(
        RESPONDENTS,
        description="respondents: bars are about those who reported; at_random: others might have, by chance",
    )

    @model_validator(mode="after")
    def _affordable(self) -> Self:
        if not 0 < self.epsilon <= 16:
            raise ValueError("devices refuse an `epsilon` that is not above 0 and at most 16")
        return self


LARGEST_LIST = 65_536
"""Most keys that a list of private values may hold."""

CONTROL = "".join(
    chr(code)
    for first, last in ((0x00, 0x1F), (0x7F, 0x9F), (0x202A, 0x202E), (0x2066, 0x2069))
    for code in range(first, last + 1)
)
"""Characters that no key has: controls, and those that turn the direction of what is printed beside them."""


def is_key(text: str, length: int, other: str) -> bool:
    r"""True if a text may be shown as a key; engines decide the same by `engines.summaries.key_sql`.

    Args:
        text: of one row.
        length: bytes at most.
        other: the word for what is not shown.

    >>> is_key("tea", 200, "(other)"), is_key("te\na", 200, "(other)"), is_key("", 200, "(other)")
    (True, False, True)
    """
    return len(text.encode()) <= length and text != other and not set(text) & set(CONTROL)


class PrivateKeys(base.Model):
    """Values that nobody listed: a part of the budget finds those that enough people have, and they become the leaves.

    **Privacy**: shown values were chosen by chance (docs/privacy/delta.md); all others are one leaf, `other`.
    """

    private: Literal[True] = Field(description="written out: the values are private")
    per_unit: int | None = Field(
        None,
        ge=1,
        le=1_000,
        description="keys of one unit that count; 16, and 1 on an axis of the unit's own and under `unit: row`",
    )
    share: base.Exact | None = Field(
        None,
        description="share of a release's budget that finds them; 1/20, and 1/10 where `per_unit` is 1; "
        "0 finds none: the leaves are those of `known` and `always`",
    )
    most: int | None = Field(
        None,
        ge=1,
        le=LARGEST_LIST,
        description="most keys shown; default: what the `cells` of its views allow, at most 65536",
    )
    known: base.Text | None = Field(
        None,
        description="a release of the same lineage: its keys are leaves again, and nothing is spent on them",
    )
    always: tuple[base.Label, ...] = Field(
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
        base.refuse({
            "`share` is at least 0 and at most 1/2: the views need the rest": not 0 <= (self.share or 0) <= 1 / 2,
            "`share: 0` finds no keys: name a release in `known`, or list keys in `always`":
                self.share == 0 and self.known is None and not self.always,
            "a value is listed twice in `always`; list each once": len(set(self.always)) != len(self.always),
        })  # fmt: skip
        return self


Categories = Annotated[
    Annotated[tuple[base.Label, ...], Tag("listed")] | Annotated[PrivateKeys, Tag("private")],
    Discriminator(lambda value: "private" if isinstance(value, dict | PrivateKeys) else "listed"),
    BeforeValidator(lambda value: {"private": True} if value == "private" else value),
]
"""Values of a column: a list, or `private`, or how private ones are found."""


class Cuts(base.Model):
    """Cuts of an axis into leaves: every `width`, or `at` the given first values of leaves."""

    width: base.Text | None = Field(
        None, description="a step in the column's own unit, or a calendar word (day .. year)"
    )
    at: tuple[base.Text, ...] = Field(
        (), description="first values of the second and later leaves, increasing"
    )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.width is None) == (not self.at):
            raise ValueError("write either {width: w} or a list of first values")
        return self


CutsField = Annotated[Cuts, base.short_for("at", list, tuple)]


class Levels(base.Model):
    """Columns over one axis, coarse to fine; the last one is the column itself."""

    levels: tuple[str, ...] = Field(
        min_length=1, description="column names of the domain table, coarse to fine"
    )


class OutOfDomain(NamedTuple):
    """Treatment of rows whose value lies outside the domain.

    Args:
        name: the catalog's word.
        keeps: whether they are kept, in a leaf of their own.
        nearest: whether a value beyond the bounds counts as the bound.
    """

    name: str
    keeps: bool
    nearest: bool = False


OUTSIDE = "(other)"
OTHER, DROP = OutOfDomain("other", True), OutOfDomain("drop", False)
NEAREST = OutOfDomain("nearest", False, nearest=True)


class Column(base.Model):
    """One column: its type and, where it may become an axis, its public domain.

    **Privacy**: bounds, categories and cuts are published. They must not be read from private rows;
    `confirm` marks the ones that were.
    """

    type: Literal["int", "decimal", "date", "timestamp", "string", "bool"] = Field(
        description="how values are read and counted"
    )
    lower: base.Text | None = Field(None, description="smallest value, inclusive")
    upper: base.Text | None = Field(None, description="largest value, inclusive")
    scale: int | None = Field(
        None, ge=0, le=LARGEST_SCALE, description="digits after the point of a decimal; 2"
    )
    grain: Literal["second", "minute", "hour", "day"] = Field("second", description="unit of a timestamp")
    categories: Categories = Field(
        (),
        description="the values of a string column, in leaf order, to the byte: quote blanks at an end; or `private`",
    )
    cuts: CutsField | None = Field(None, description="leaves wider than one value")
    nullable: bool = Field(
        False,
        description="NULL gets a leaf of its own; else it is outside the domain, and in sums the middle of the bounds",
    )
    measure: bool = Field(False, description="may be summed")
    quantiles: bool = Field(
        False,
        description="of a measure: an axis of it in its views, for MEDIAN, quantiles, MIN and MAX;"
        " its leaves are `cuts`, else about 32 made of the bounds",
    )
    axis: Levels | None = Field(None, description="hierarchy of columns over this axis, needs `from`")
    from_: str | None = Field(None, alias="from", description="table of role domain that lists the values")
    out_of_domain: Annotated[OutOfDomain, base.OneOf(OTHER, DROP)] = Field(
        OTHER, description="a leaf of its own, or leave the row out"
    )
    other: str = Field(
        OUTSIDE,
        min_length=1,
        description="name in answers for texts outside the domain, and for NULL if not `nullable`",
    )
    reported: Reported | None = Field(
        None, description="only people's devices know it; the source has no such column but their reports"
    )
    confirm: bool = Field(False, description="a bound was read from data; publish refuses until removed")
    description: str = Field("", description="a sentence for analysts")

    @property
    def leaves(self) -> int:
        """Leaves of its domain, without NULL and what lies outside.

        Raises:
            ValueError: the catalog alone does not say.
        """
        if self.ordered:
            return len(bin_starts(self, self.cuts))
        if self.private_keys is not None:
            raise ValueError("its keys are found when it is published")
        return 2 if self.type == "bool" else len(self.listed)

    @property
    def listed(self) -> tuple[str, ...]:
        """Its categories where the catalog lists them."""
        return self.categories if isinstance(self.categories, tuple) else ()

    @property
    def private_keys(self) -> PrivateKeys | None:
        """Rule for finding values that nobody listed."""
        return self.categories if isinstance(self.categories, PrivateKeys) else None

    @property
    def digits(self) -> int:
        """The scale in force: 0 for every type but decimal."""
        if self.type != "decimal":
            return 0
        return DEFAULT_SCALE if self.scale is None else self.scale

    @property
    def ordered(self) -> bool:
        """True if values are counted in units (int, decimal, date, timestamp); not keys that nobody listed."""
        return self.type in ORDERED and self.private_keys is None

    @property
    def has_domain(self) -> bool:
        """True if the catalog alone says which leaves an axis over this column has."""
        return (
            self.type == "bool" or bool(self.categories) or self.from_ is not None or self.lower is not None
        )

    def units(self, text: str, *, upper: bool = False) -> int:
        """A value of this column in whole units (see `dpsql.catalog.base`)."""
        return base.to_units(self.type, text, scale=self.digits, grain=self.grain, upper=upper)

    def text(self, unit: int) -> str:
        """A count of units as the catalog writes the value."""
        return base.from_units(self.type, unit, scale=self.digits, grain=self.grain)

    @property
    def bounds(self) -> tuple[int, int]:
        """Lower and upper bound in units, both inclusive.

        Raises:
            ValueError: the column has no bounds.
        """
        if self.lower is None or self.upper is None:
            raise ValueError("write `lower` and `upper`; they are public and hold for every possible row")
        return self.units(self.lower), self.units(self.upper, upper=True)

    @model_validator(mode="after")
    def _keys_fit_the_type(self) -> Self:
        misplaced = {
            "scale": self.scale is not None and self.type != "decimal",
            "grain": self.grain != "second" and self.type != "timestamp",
            "categories": bool(self.listed) and self.type != "string",
            "categories: private": self.private_keys is not None and self.type not in ("string", "int"),
            "cuts": self.cuts is not None and self.type not in ORDERED,
            "lower": self.lower is not None and self.type not in ORDERED,
            "upper": self.upper is not None and self.type not in ORDERED,
            "measure": self.measure and self.type not in NUMERIC,
            "from": self.from_ is not None and self.type != "string",
            "other": self.other != OUTSIDE and self.type != "string",
        }
        rule = f"does not go with type {self.type}; remove it or change the type"
        base.refuse({f"`{key}` {rule}": wrong for key, wrong in misplaced.items()})
        return self

    @model_validator(mode="after")
    def _domain_is_whole(self) -> Self:
        bounded = self.lower is not None and self.upper is not None
        base.refuse({
            "write both `lower` and `upper`, or neither": (self.lower is None) != (self.upper is None),
            "`lower` is above `upper`; swap them": bounded and self.bounds[0] > self.bounds[1],
            "`quantiles` are of a measure; add `measure: true`": self.quantiles and not self.measure,
            "`cuts` and `measure` need `lower` and `upper`": bool(self.cuts or self.measure) and not bounded,
        })  # fmt: skip
        if self.private_keys is not None:
            listing = {"from": self.from_, "lower": self.lower, "cuts": self.cuts, "reported": self.reported}
            rule = "and private `categories` do not go together; remove one of them"
            base.refuse({f"`{key}` {rule}": value is not None for key, value in listing.items()})
            if not self.out_of_domain.keeps:
                raise ValueError("rows of keys that are not shown lie in `other`; remove `out_of_domain`")
            for key in self.private_keys.always:
                number = self.type != "string" and re.fullmatch(r"-?[0-9]{1,18}", key)
                if not (
                    number or (self.type == "string" and is_key(key, self.private_keys.length, self.other))
                ):
                    raise ValueError(f"`{key}` in `always` cannot be a key of this column; remove it")
        alike = " and ".join(map(repr, base.alike_but_for_blanks(self.listed) or ()))
        base.refuse({
            "a category is listed twice; list each once": len(set(self.listed)) != len(self.listed),
            f"the categories {alike} differ in blanks alone; trim the column by `derive` and list one of them":
                alike != "",
            f"`{self.other}` is a category; write another word in `other`":
                self.other in self.listed and self.out_of_domain.keeps,
            "write either `categories` or `from`, not both": bool(self.categories) and self.from_ is not None,
            "`axis` and private `categories` do not go together: hierarchies are listed in a table":
                self.axis is not None and self.private_keys is not None,
            "`axis.levels` needs `from: <table of role domain>` that maps fine to coarse":
                self.axis is not None and self.from_ is None,
        })  # fmt: skip
        return self


LARGEST_LEAVES = 2**20
_DAY = base.GRAIN_MICROSECONDS["day"]
_STEP_MICROSECONDS = {"minute": 60 * 10**6, "hour": 3600 * 10**6, "day": _DAY, "week": 7 * _DAY}
_MONDAY = 4  # 1970-01-01 was a Thursday; 1970-01-05 began a week
_MONTHS = {"month": 1, "quarter": 3, "year": 12}


def bin_starts(column: Column, cuts: Cuts | None) -> tuple[int, ...]:
    """The first unit of each leaf, increasing; the first one is the lower bound.

    A leaf runs to the next start, the last one to the upper bound, inclusive. Where a number as width divides
    upper - lower, the upper bound itself joins the last leaf instead of making one of its own. Calendar words
    begin leaves where the calendar does, as DATE_TRUNC would.

    Args:
        column: an ordered column with bounds.
        cuts: a width or a list; None makes each unit a leaf.

    Returns:
        Starts in units of the column.

    Raises:
        ValueError: cuts outside the bounds, or more than 2**20 leaves.

    >>> price = Column(type="int", lower="0", upper="10", cuts=Cuts(width="5"))
    >>> bin_starts(price, price.cuts), bin_starts(price, Cuts(at=("1", "9")))
    ((0, 5), (0, 1, 9))
    """
    lower, upper = column.bounds
    if cuts is None:
        starts: range | list[int] = range(lower, upper + 1)
    elif cuts.at:
        starts = [column.units(text) for text in cuts.at]
        if starts != sorted(set(starts)):
            raise ValueError("`cuts` must increase strictly; sort them")
        if starts[0] < lower or starts[-1] > upper:
            raise ValueError("`cuts` must lie between `lower` and `upper`; drop the ones outside")
        starts = starts if starts[0] == lower else [lower, *starts]
    elif cuts.width in CALENDAR and column.type in ("date", "timestamp"):
        starts = _calendar(column, cuts.width, lower, upper)
    else:
        starts = _even(column, str(cuts.width), lower, upper)
    if len(starts) > LARGEST_LEAVES:
        raise ValueError(f"{len(starts)} leaves are more than {LARGEST_LEAVES}; write `cuts: {{width: ...}}`")
    return tuple(starts)


def _even(column: Column, width: str, lower: int, upper: int) -> range:
    if width in CALENDAR:
        raise ValueError(f"`width: {width}` does not go with type {column.type}; write a number")
    steps = base.as_fraction(width) * 10**column.digits
    if steps.denominator != 1 or steps < 1:
        raise ValueError(f"`width: {width}` is not a whole number of units of the column; widen it")
    step = int(steps)
    starts = range(lower, upper + 1, step)
    closes = len(starts) > 1 and (upper - lower) % step == 0 and step > 1
    return starts[:-1] if closes else starts


def _calendar(column: Column, width: str, lower: int, upper: int) -> list[int]:
    """Leaves that begin where the calendar does: a minute, an hour, midnight, Monday, the first of a month."""
    unit = _DAY if column.type == "date" else base.GRAIN_MICROSECONDS[column.grain]
    if width in _MONTHS:
        return _months(Fraction(_DAY, unit), _MONTHS[width], lower, upper)
    step, remainder = divmod(_STEP_MICROSECONDS[width], unit)
    if step == 0 or remainder:
        raise ValueError(f"`width: {width}` is finer than the column; widen it")
    origin = _MONDAY * _DAY // unit if width == "week" else 0
    return [lower, *range(lower + step - (lower - origin) % step, upper + 1, step)]


def _months(units_per_day: Fraction, months: int, lower: int, upper: int) -> list[int]:
    """Leaves that begin with a calendar month, quarter or year."""
    first = base.EPOCH + timedelta(days=int(lower // units_per_day))
    month = (first.year * 12 + first.month - 1) // months * months + months
    starts = [lower]
    while month < 10_000 * 12:
        start = int((date(month // 12, month % 12 + 1, 1) - base.EPOCH).days * units_per_day)
        if start > upper:
            break
        starts.append(start)
        month += months
    return starts
