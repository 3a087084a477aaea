"""A table of the star as the catalog says it: its role, keys, columns and measures, all public facts.

A column has a type, bounds or categories, and cuts (`bin_starts` turns these into leaves: the first unit of every leaf
of an ordered column). A foreign key names rows of another table, and says what becomes of rows whose key finds none. A
summary is a column made of one person's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from dpsql.catalog.base import (
    EPOCH,
    GRAIN_MICROSECONDS,
    Exact,
    Model,
    OneOf,
    Text,
    alike_but_for_blanks,
    as_fraction,
    from_units,
    short_for,
    to_units,
)
from dpsql.catalog.devices import Reported
from dpsql.catalog.private_keys import Categories, PrivateKeys

ORDERED = ("int", "decimal", "date", "timestamp")
NUMERIC = ("int", "decimal")
CALENDAR = ("minute", "hour", "day", "week", "month", "quarter", "year")
DEFAULT_SCALE = 2
LARGEST_SCALE = 9


class Cuts(Model):
    """Cuts of an axis into leaves: every `width`, or `at` the given first values of leaves."""

    width: Text | None = Field(
        None, description="a step in the column's own unit, or a calendar word (day .. year)"
    )
    at: tuple[Text, ...] = Field((), description="first values of the second and later leaves, increasing")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.width is None) == (not self.at):
            raise ValueError("write either {width: w} or a list of first values")
        return self


CutsField = Annotated[Cuts, short_for("at", list, tuple)]


class Levels(Model):
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


class Column(Model):
    """One column: its type and, where it may become an axis, its public domain.

    **Privacy**: bounds, categories and cuts are published. They must not be read from private rows;
    `confirm` marks the ones that were.
    """

    type: Literal["int", "decimal", "date", "timestamp", "string", "bool"] = Field(
        description="how values are read and counted"
    )
    lower: Text | None = Field(None, description="smallest value, inclusive")
    upper: Text | None = Field(None, description="largest value, inclusive")
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
    out_of_domain: Annotated[OutOfDomain, OneOf(OTHER, DROP)] = Field(
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
        return to_units(self.type, text, scale=self.digits, grain=self.grain, upper=upper)

    def text(self, unit: int) -> str:
        """A count of units as the catalog writes the value."""
        return from_units(self.type, unit, scale=self.digits, grain=self.grain)

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
        interpolation_bound = {
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
        for key, wrong in interpolation_bound.items():
            if wrong:
                raise ValueError(f"`{key}` does not go with type {self.type}; remove it or change the type")
        return self

    @model_validator(mode="after")
    def _domain_is_whole(self) -> Self:
        if (self.lower is None) != (self.upper is None):
            raise ValueError("write both `lower` and `upper`, or neither")
        if self.lower is not None and self.bounds[0] > self.bounds[1]:
            raise ValueError("`lower` is above `upper`; swap them")
        if self.quantiles and not self.measure:
            raise ValueError("`quantiles` are of a measure; add `measure: true`")
        if (self.cuts or self.measure) and self.lower is None:
            raise ValueError("`cuts` and `measure` need `lower` and `upper`")
        if self.private_keys is not None:
            self._is_found()
        if len(set(self.listed)) != len(self.listed):
            raise ValueError("a category is listed twice; list each once")
        if alike := alike_but_for_blanks(self.listed):
            raise ValueError(
                f"the categories {' and '.join(map(repr, alike))} differ in blanks alone; trim the column by "
                "`derive` and list one of them"
            )
        if self.other in self.listed and self.out_of_domain.keeps:
            raise ValueError(f"`{self.other}` is a category; write another word in `other`")
        if self.categories and self.from_ is not None:
            raise ValueError("write either `categories` or `from`, not both")
        if self.axis is not None and self.private_keys is not None:
            raise ValueError(
                "`axis` and private `categories` do not go together: hierarchies are listed in a table"
            )
        if self.axis is not None and self.from_ is None:
            raise ValueError("`axis.levels` needs `from: <table of role domain>` that maps fine to coarse")
        return self

    def _is_found(self) -> None:
        """Refuse what does not go with private categories."""
        keys = self.private_keys
        assert keys is not None
        other_keys = {
            "from": self.from_, "lower": self.lower, "upper": self.upper, "cuts": self.cuts, "reported": self.reported,
        }  # fmt: skip
        for key, value in other_keys.items():
            if value is not None:
                raise ValueError(f"`{key}` and private `categories` do not go together; remove one of them")
        if not self.out_of_domain.keeps:
            raise ValueError("rows of keys that are not shown lie in `other`; remove `out_of_domain`")
        keys.check_always(self.type, self.other)


class Summary(Column):
    """One value a person, of all her rows of a fact: a column of the people's table (`dpsql.catalog.summaries`).

    **Privacy**: a function of her own rows, so it comes and goes with her; bounds are published, as a column's.
    """

    of: str = Field(min_length=1, description="the fact whose rows are summarised, one value a person")
    is_: str = Field(
        min_length=1, alias="is", description="one aggregate of her rows, with FILTER (WHERE ..) if wanted"
    )
    out_of_domain: Annotated[OutOfDomain, OneOf(OTHER, DROP, NEAREST)] = Field(
        NEAREST,
        description="numbers and dates beyond the bounds count as the bound, unless other or drop is written",
    )

    @model_validator(mode="before")
    @classmethod
    def _texts_have_no_bound(cls, values: Any) -> Any:
        if isinstance(values, dict):
            keys = isinstance(values.get("categories"), str | dict)  # private ones
            if str(values.get("type")) not in ORDERED or keys:
                return {"out_of_domain": OTHER.name} | values
        return values

    @model_validator(mode="after")
    def _reads_rows(self) -> Self:
        if self.out_of_domain.nearest and not self.ordered:
            raise ValueError(
                f"`out_of_domain: nearest` does not go with type {self.type}; write other or drop"
            )
        if self.from_ is not None or self.reported is not None:
            raise ValueError("a summary is made of rows; remove `from` and `reported`")
        if self.quantiles:
            raise ValueError(
                "a summary has quantiles where it is an axis; remove `quantiles` and list it in `axes`"
            )
        return self


class Measure(Model):
    """A declared measure: a pure expression over the columns of its table, with bounds."""

    expr: str = Field(min_length=1, description="SQL over the table's own columns")
    lower: Text = Field(description="smaller values count as this one")
    upper: Text = Field(description="larger values count as this one")
    scale: int = Field(
        DEFAULT_SCALE, ge=0, le=LARGEST_SCALE, description="digits after the point that are kept"
    )
    nullable: bool = Field(
        False,
        description="rows that are not NULL are counted too, for AVG; else NULL is the middle of the bounds",
    )
    confirm: bool = Field(False, description="a bound was read from data; publish refuses until removed")
    description: str = Field("", description="a sentence for analysts")

    @property
    def bounds(self) -> tuple[int, int]:
        """Lower and upper bound in units of 10**-scale, both inclusive."""
        return tuple(to_units("decimal", text, scale=self.scale) for text in (self.lower, self.upper))  # type: ignore[return-value]

    @model_validator(mode="after")
    def _ordered_bounds(self) -> Self:
        low, high = self.bounds
        if low > high:
            raise ValueError("`lower` is above `upper`; swap them")
        return self


LARGEST_LEAVES = 2**20
_DAY = GRAIN_MICROSECONDS["day"]
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
        starts = _listed(column, cuts.at, lower, upper)
    elif cuts.width in CALENDAR and column.type in ("date", "timestamp"):
        starts = _calendar(column, cuts.width, lower, upper)
    else:
        starts = _even(column, str(cuts.width), lower, upper)
    if len(starts) > LARGEST_LEAVES:
        raise ValueError(f"{len(starts)} leaves are more than {LARGEST_LEAVES}; write `cuts: {{width: ...}}`")
    return tuple(starts)


def _listed(column: Column, at: tuple[str, ...], lower: int, upper: int) -> list[int]:
    starts = [column.units(text) for text in at]
    if starts != sorted(set(starts)):
        raise ValueError("`cuts` must increase strictly; sort them")
    if starts[0] < lower or starts[-1] > upper:
        raise ValueError("`cuts` must lie between `lower` and `upper`; drop the ones outside")
    return starts if starts[0] == lower else [lower, *starts]


def _even(column: Column, width: str, lower: int, upper: int) -> range:
    step = _step(column, width)
    starts = range(lower, upper + 1, step)
    closes = len(starts) > 1 and (upper - lower) % step == 0 and step > 1
    return starts[:-1] if closes else starts


def _step(column: Column, width: str) -> int:
    """A width in units of the column."""
    if width in CALENDAR:
        raise ValueError(f"`width: {width}` does not go with type {column.type}; write a number")
    steps = as_fraction(width) * 10**column.digits
    if steps.denominator != 1 or steps < 1:
        raise ValueError(f"`width: {width}` is not a whole number of units of the column; widen it")
    return int(steps)


def _calendar(column: Column, width: str, lower: int, upper: int) -> list[int]:
    """Leaves that begin where the calendar does: a minute, an hour, midnight, Monday, the first of a month."""
    unit = _DAY if column.type == "date" else GRAIN_MICROSECONDS[column.grain]
    if width in _MONTHS:
        return _months(Fraction(_DAY, unit), _MONTHS[width], lower, upper)
    step, remainder = divmod(_STEP_MICROSECONDS[width], unit)
    if step == 0 or remainder:
        raise ValueError(f"`width: {width}` is finer than the column; widen it")
    origin = _MONDAY * _DAY // unit if width == "week" else 0
    return [lower, *range(lower + step - (lower - origin) % step, upper + 1, step)]


def _months(units_per_day: Fraction, months: int, lower: int, upper: int) -> list[int]:
    """Leaves that begin with a calendar month, quarter or year."""
    first = EPOCH + timedelta(days=int(lower // units_per_day))
    month = (first.year * 12 + first.month - 1) // months * months + months
    starts = [lower]
    while month < 10_000 * 12:
        start = int((date(month // 12, month % 12 + 1, 1) - EPOCH).days * units_per_day)
        if start > upper:
            break
        starts.append(start)
        month += months
    return starts


class OnMissing(NamedTuple):
    """Treatment of rows whose key finds no row.

    Args:
        name: the catalog's word.
        drops: whether they are left out; else they are kept, in a leaf of their own.
    """

    name: str
    drops: bool


MISSING_KEPT, MISSING_DROPPED = OnMissing("keep", drops=False), OnMissing("drop", drops=True)


class ForeignKey(Model):
    """A column that names a row of another table by its key."""

    references: str = Field(description="the table")
    on_missing: Annotated[OnMissing, OneOf(MISSING_KEPT, MISSING_DROPPED)] = Field(
        MISSING_KEPT, description="rows whose key finds no row: kept in a leaf of their own, or left out"
    )
    nullable: bool = Field(
        False,
        description="whether the key may be NULL; on the way to the privacy unit such rows are nobody's and in no "
        "answer, and every answer about the table says so",
    )

    @property
    def drops(self) -> bool:
        """True if rows whose key finds no row are left out."""
        return self.on_missing.drops


class TableRole(NamedTuple):
    """Role of a table's rows.

    Args:
        name: the catalog's word.
        counted: they are counted; nobody may see them.
        listed: they are a public list of values.
        named: other rows name them, by a key.
    """

    name: str
    counted: bool = False
    listed: bool = False
    named: bool = False


FACT, DIMENSION, DOMAIN = (
    TableRole("fact", counted=True),
    TableRole("dimension", named=True),
    TableRole("domain", listed=True),
)


class ExcessRowsRule(NamedTuple):
    """Treatment of a unit's rows beyond `max_ids`.

    Args:
        name: the catalog's word.
        weighs: whether all rows of the unit count for so many together; else they are left out.
    """

    name: str
    weighs: bool


TRUNCATE, WEIGHT = ExcessRowsRule("truncate", weighs=False), ExcessRowsRule("weight", weighs=True)


def one_digit(number: int) -> int:
    """A whole number with one significant digit.

    >>> one_digit(16049), one_digit(600), one_digit(95)
    (20000, 600, 100)
    """
    power = int(10 ** (len(str(number)) - 1))
    return (2 * number + power) // (2 * power) * power


class PublicGuess(Model):
    """About how large a table is, in public: forecasts need it, and the release stores it.

    **Privacy**: one significant digit is kept; it must be public anyway, and not follow from the rows at hand.
    """

    units: int = Field(description="about how many privacy units own rows; one significant digit is kept")
    rows: int = Field(description="about how many rows there are")
    most_rows: int | None = Field(None, description="about the number of rows that hardly any unit exceeds")

    @model_validator(mode="after")
    def _of_one_digit(self) -> Self:
        if not 1 <= self.units <= self.rows <= 10**12:
            raise ValueError("`guess` needs at least one unit, and at least as many rows as units")
        if self.most_rows is not None and not self.units * self.most_rows >= self.rows >= self.most_rows:
            raise ValueError("`most_rows` is at least rows / units, and at most rows")
        for key in ("units", "rows", "most_rows"):
            if (number := getattr(self, key)) is not None:
                object.__setattr__(self, key, one_digit(number))
        return self


class Table(Model):
    """One table of the star: fact, dimension or domain (a public list of values)."""

    role: Annotated[TableRole, OneOf(FACT, DIMENSION, DOMAIN)] = Field(
        description="rows that are counted, rows that these name, or a public list of values"
    )
    key: str | None = Field(None, description="the column that names a row; dimensions need it")
    private: bool | None = Field(
        None, description="facts and dimensions are private unless a dimension says false"
    )
    written: dict[str, Column] = Field(
        default_factory=dict, alias="columns", description="those that are asked about"
    )
    summaries: dict[str, Summary] = Field(
        default_factory=dict,
        max_length=64,
        description="column name: a fact about a person, made of her rows; of the people's table alone",
    )
    foreign_keys: dict[str, Annotated[ForeignKey, short_for("references", str)]] = Field(
        default_factory=dict, description="column name: the table whose key it holds"
    )
    derive: dict[str, str] = Field(
        default_factory=dict, description="column name: pure SQL over this table's columns"
    )
    measures: dict[str, Measure] = Field(
        default_factory=dict, description="name: an expression that may be summed"
    )
    max_ids: int | Literal["auto"] | None = Field(
        None, description="rows per privacy unit that count; or auto"
    )
    bounding: Annotated[ExcessRowsRule, OneOf(TRUNCATE, WEIGHT)] = Field(
        TRUNCATE, description="rows of a unit beyond max_ids: left out, or all weighted by max_ids / rows"
    )
    clipped_share: Exact | None = Field(
        None,
        description="share of the table's budget that measures the rows beyond a number in max_ids: 0.01 unless "
        "written, 0.1 if all its views read columns that devices report, 0 for no measurement",
    )
    excess_share: Exact | None = Field(
        None,
        description="share of the table's budget that measures, for each summed column, the values beyond its bounds: "
        "none unless written; `dpsql init` writes 0.01",
    )
    guess: PublicGuess | None = Field(
        None,
        description="public guess of the units and rows, which forecasts need under max_ids: auto",
    )
    unit_path: tuple[str, ...] = Field(
        (), description="foreign keys to the privacy unit, where several lead there"
    )
    confirm: bool = Field(False, description="a guess of `dpsql init`; publish refuses until removed")
    description: str = Field("", description="a sentence for analysts")

    @property
    def columns(self) -> Mapping[str, Column]:
        """Everything that may be asked about: columns of the source and summaries."""
        return {**self.written, **self.summaries} if self.summaries else self.written

    @property
    def marked(self) -> Mapping[str, Mapping[str, Column | Measure]]:
        """Places where `confirm` may stand, section by section."""
        return {"columns": self.written, "summaries": self.summaries, "measures": self.measures}

    @property
    def is_public(self) -> bool:
        """True if the rows of this table are public."""
        return self.role.listed or self.private is False

    @property
    def chooses_rows(self) -> bool:
        """True if publishing chooses how many rows of a unit count."""
        return self.max_ids is not None and not isinstance(self.max_ids, int)

    @field_validator("max_ids")
    @classmethod
    def _positive(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and not 1 <= value <= 10**6:
            raise ValueError("write a whole number from 1 to 1000000, or auto")
        return value

    @field_validator("clipped_share", "excess_share")
    @classmethod
    def _small(cls, value: Fraction | None, field: ValidationInfo) -> Fraction | None:
        if value is not None and not 0 <= value <= Fraction(1, 4):
            of_rows = field.field_name == "clipped_share"
            measured = "rows beyond max_ids" if of_rows else "values beyond bounds"
            raise ValueError(f"`{field.field_name}` is at least 0 and at most 0.25; 0 measures no {measured}")
        return value

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        keys = [key for key, on in (("bounding: weight", self.bounding.weighs),
                                     ("clipped_share", self.clipped_share is not None)) if on]  # fmt: skip
        if keys and not isinstance(self.max_ids, int):
            raise ValueError(f"`{keys[0]}` needs a declared number in `max_ids`")
        return self

    @model_validator(mode="after")
    def _role_fits(self) -> Self:
        if self.role.counted and self.private is False:
            raise ValueError("a fact table is private; a public list of values is `role: domain`")
        if self.guess is not None and self.is_public:
            raise ValueError("a public table needs no `guess`; remove it")
        if self.role.listed and self.private:
            raise ValueError("a domain table is published; remove `private: true` or use `role: dimension`")
        if self.role.named and self.key is None:
            raise ValueError("a dimension needs `key: <column>`")
        clash = sorted({*self.measures} & {*self.written})
        if clash:
            raise ValueError(f"`{clash[0]}` is both a column and a measure; rename one")
        return self
