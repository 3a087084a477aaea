"""Columns and measures of a table: types, bounds, categories and cuts, all public facts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from dpsql.catalog.base import Model
from dpsql.catalog.scalars import Text, to_units

ORDERED = ("int", "decimal", "date", "timestamp")
NUMERIC = ("int", "decimal")
CALENDAR = ("minute", "hour", "day", "week", "month", "quarter", "year")
DEFAULT_SCALE = 2
LARGEST_SCALE = 9


class Cuts(Model):
    """Where an axis is cut into leaves: every `width`, or `at` the given first values of leaves."""

    width: Text | None = Field(
        None, description="a step in the column's own unit, or a calendar word (day .. year)"
    )
    at: tuple[Text, ...] = Field((), description="first values of the second and later leaves, increasing")

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if (self.width is None) == (not self.at):
            raise ValueError("write either {width: w} or a list of first values")
        return self


def _cuts(value: Any) -> Any:
    return {"at": value} if isinstance(value, list | tuple) else value


CutsField = Annotated[Cuts, BeforeValidator(_cuts)]


class Levels(Model):
    """Columns over one axis, coarse to fine; the last one is the column itself."""

    levels: tuple[str, ...] = Field(
        min_length=1, description="column names of the domain table, coarse to fine"
    )


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
    categories: tuple[Text, ...] = Field((), description="the values of a string column, in leaf order")
    cuts: CutsField | None = Field(None, description="leaves wider than one value")
    nullable: bool = Field(False, description="NULL gets a leaf of its own")
    measure: bool = Field(False, description="may be summed")
    axis: Levels | None = Field(None, description="hierarchy of columns over this axis, needs `from`")
    from_: str | None = Field(None, alias="from", description="table of role domain that lists the values")
    out_of_domain: Literal["other", "drop"] = Field(
        "other", description="a leaf of its own, or leave the row out"
    )
    confirm: bool = Field(False, description="a bound was read from data; publish refuses until removed")
    description: str = Field("", description="a sentence for those who ask")

    @property
    def digits(self) -> int:
        """The scale in force: 0 for every type but decimal."""
        if self.type != "decimal":
            return 0
        return DEFAULT_SCALE if self.scale is None else self.scale

    @property
    def ordered(self) -> bool:
        """Whether values are counted in units (int, decimal, date, timestamp)."""
        return self.type in ORDERED

    @property
    def has_domain(self) -> bool:
        """Whether the catalog alone says which leaves an axis over this column has."""
        return (
            self.type == "bool" or bool(self.categories) or self.from_ is not None or self.lower is not None
        )

    def units(self, text: str, *, upper: bool = False) -> int:
        """A value of this column in whole units (see `dpsql.catalog.scalars`)."""
        return to_units(self.type, text, scale=self.digits, grain=self.grain, upper=upper)

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
            "categories": bool(self.categories) and self.type != "string",
            "cuts": self.cuts is not None and not self.ordered,
            "lower": self.lower is not None and not self.ordered,
            "upper": self.upper is not None and not self.ordered,
            "measure": self.measure and self.type not in NUMERIC,
            "from": self.from_ is not None and self.type != "string",
        }
        for key, wrong in misplaced.items():
            if wrong:
                raise ValueError(f"`{key}` does not go with type {self.type}; remove it or change the type")
        return self

    @model_validator(mode="after")
    def _domain_is_whole(self) -> Self:
        if (self.lower is None) != (self.upper is None):
            raise ValueError("write both `lower` and `upper`, or neither")
        if self.lower is not None and self.bounds[0] > self.bounds[1]:
            raise ValueError("`lower` is above `upper`; swap them")
        if (self.cuts or self.measure) and self.lower is None:
            raise ValueError("`cuts` and `measure` need `lower` and `upper`")
        if len(set(self.categories)) != len(self.categories):
            raise ValueError("a category is listed twice; list each once")
        if self.categories and self.from_ is not None:
            raise ValueError("write either `categories` or `from`, not both")
        if self.axis is not None and self.from_ is None:
            raise ValueError("`axis.levels` needs `from: <table of role domain>` that maps fine to coarse")
        return self


class Measure(Model):
    """A declared measure: a pure expression over the columns of its table, with bounds."""

    expr: str = Field(min_length=1, description="SQL over the table's own columns")
    lower: Text = Field(description="smaller values count as this one")
    upper: Text = Field(description="larger values count as this one")
    scale: int = Field(
        DEFAULT_SCALE, ge=0, le=LARGEST_SCALE, description="digits after the point that are kept"
    )
    nullable: bool = Field(False, description="rows that are not NULL are counted too, for AVG")
    confirm: bool = Field(False, description="a bound was read from data; publish refuses until removed")
    description: str = Field("", description="a sentence for those who ask")

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
