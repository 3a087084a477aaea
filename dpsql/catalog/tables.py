"""Tables, foreign keys, views and their axes as the YAML names them."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from dpsql.catalog.base import Model
from dpsql.catalog.columns import Column, CutsField, Measure
from dpsql.catalog.scalars import Exact, Text

DEFAULT_CELLS = 2**24
MECHANISMS = (
    "auto",
    "lue_dptree",
    "struct_construct",
    "tree",
    "tents",
    "identity",
    "gaussian",
    "residual",
    "product_hats",
    "diffhr",
    "dawa",
)


class ForeignKey(Model):
    """A column that names a row of another table by its key."""

    references: str = Field(description="the table")
    on_missing: Literal["keep", "drop"] = Field(
        "keep", description="rows whose key finds no row: kept in a leaf of their own, or left out"
    )


def _reference(value: Any) -> Any:
    return {"references": value} if isinstance(value, str) else value


class Table(Model):
    """One table of the star: fact, dimension or domain (a public list of values)."""

    role: Literal["fact", "dimension", "domain"] = Field(
        description="rows that are counted, rows that these name, or a public list of values"
    )
    key: str | None = Field(None, description="the column that names a row; dimensions need it")
    private: bool | None = Field(
        None, description="facts and dimensions are private unless a dimension says false"
    )
    columns: dict[str, Column] = Field(default_factory=dict, description="those that are asked about")
    foreign_keys: dict[str, Annotated[ForeignKey, BeforeValidator(_reference)]] = Field(
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
    bounding: Literal["truncate", "weight"] = Field(
        "truncate", description="rows of a unit beyond max_ids: left out, or all weighted by max_ids / rows"
    )
    clipped_share: Exact | None = Field(
        None, description="part of the table's budget that pays for telling how many rows bounding left out"
    )
    unit_path: tuple[str, ...] = Field(
        (), description="foreign keys to the privacy unit, where several lead there"
    )
    confirm: bool = Field(False, description="a guess of `dpsql init`; publish refuses until removed")
    description: str = Field("", description="a sentence for those who ask")

    @property
    def is_public(self) -> bool:
        """Whether the rows of this table are public."""
        return self.role == "domain" or self.private is False

    @field_validator("max_ids")
    @classmethod
    def _positive(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, int) and not 1 <= value <= 10**6:
            raise ValueError("write a whole number from 1 to 1000000, or auto")
        return value

    @field_validator("clipped_share")
    @classmethod
    def _small(cls, value: Fraction | None) -> Fraction | None:
        if value is not None and not 0 < value <= Fraction(1, 4):
            raise ValueError("`clipped_share` is above 0 and at most 0.25")
        return value

    @model_validator(mode="after")
    def _bounds_fit(self) -> Self:
        asked = [key for key, on in (("bounding: weight", self.bounding == "weight"),
                                     ("clipped_share", self.clipped_share is not None)) if on]  # fmt: skip
        if asked and not isinstance(self.max_ids, int):
            raise ValueError(f"`{asked[0]}` needs a declared number in `max_ids`")
        return self

    @model_validator(mode="after")
    def _role_fits(self) -> Self:
        if self.role == "fact" and self.private is False:
            raise ValueError("a fact table is private; a public list of values is `role: domain`")
        if self.role == "domain" and self.private:
            raise ValueError("a domain table is published; remove `private: true` or use `role: dimension`")
        if self.role == "dimension" and self.key is None:
            raise ValueError("a dimension needs `key: <column>`")
        clash = sorted({*self.measures} & {*self.columns})
        if clash:
            raise ValueError(f"`{clash[0]}` is both a column and a measure; rename one")
        return self


class AxisSpec(Model):
    """An axis of a view: a column, or a public dimension at a grain."""

    axis: str = Field(
        min_length=1, description="table.column, foreign_key.column, or a public dimension with `by`"
    )
    by: tuple[str, ...] = Field(
        (), description="columns of a public dimension whose distinct values are the leaves"
    )
    cuts: CutsField | None = Field(None, description="coarser cuts than the column's own, for this view")
    asked: tuple[tuple[Text, Text, Exact], ...] = Field(
        (), description="a public query log: [lowest, highest] or [lowest, highest, weight] of each range"
    )

    @field_validator("asked", mode="before")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        """A range without a weight counts once."""
        if not isinstance(value, list | tuple):
            return value
        return tuple(
            (*part, 1) if isinstance(part, list | tuple) and len(part) == 2 else part for part in value
        )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        if any(weight <= 0 for _, _, weight in self.asked):
            raise ValueError("the weight of a range in `asked` must be above 0")
        if self.by and self.cuts:
            raise ValueError("`by` and `cuts` do not go together; keep one")
        if len(set(self.by)) != len(self.by):
            raise ValueError("a column stands twice in `by`; list each once")
        return self


def _axis(value: Any) -> Any:
    return {"axis": value} if isinstance(value, str) else value


def _shares(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    names = [str(name) for name in value]
    if len(set(names)) != len(names):
        raise ValueError("a measure is listed twice; list each once")
    return {name: Fraction(1, len(names)) for name in names}


class View(Model):
    """What is measured together: a table, a few axes, and measures that split the view's share."""

    of: str = Field(description="the table whose rows are counted")
    axes: tuple[Annotated[AxisSpec, BeforeValidator(_axis)], ...] = Field(
        min_length=1, max_length=8, description="columns, or public dimensions with `by`"
    )
    measures: Annotated[dict[str, Exact], BeforeValidator(_shares)] = Field(
        default_factory=lambda: {"count": Fraction(1)},
        description="count, table.column or table.measure, with shares; or a list, with equal shares",
    )
    share: Exact | None = Field(None, description="part of epsilon; views without one split what is left")
    mechanism: Literal[MECHANISMS] = Field(  # type: ignore[valid-type]
        "auto", description="how it is measured; `auto` is what errs least"
    )
    data_dependent: Literal["refuse", "allow"] = Field(
        "refuse",
        description="allow: `auto` may choose a one-axis view's strategy by noisy numbers it pays for",
    )
    nonnegative: bool | None = Field(
        None, description="store non-negative (biased) estimates too; by default of counts up to 2^20 cells"
    )
    cells: int = Field(
        DEFAULT_CELLS, ge=1, le=2**30, description="largest number of cells that may be published"
    )
    coarsen: dict[str, CutsField] = Field(
        default_factory=dict, description="axis name: coarser cuts in this view"
    )
    calibrate: Literal["none", "per_group"] = Field(
        "none", description="per_group: each group has a factor of its own (`max_ids: auto`)"
    )
    on_partial_bin: Literal["limit", "interpolate", "refuse"] | None = Field(
        None, description="bins that a statement cuts in this view; by default as the catalog says"
    )
    description: str = Field("", description="a sentence for those who ask")

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        if not self.measures:
            raise ValueError("a view needs a measure; write `measures: [count]`")
        if any(share <= 0 for share in self.measures.values()):
            raise ValueError("a measure's share must be above 0")
        total = sum(self.measures.values(), Fraction(0))
        if total > 1:
            raise ValueError(f"the shares of `measures` add up to {total}; keep them at 1 or less")
        if self.share is not None and not 0 < self.share <= 1:
            raise ValueError("`share` must be above 0 and at most 1")
        return self
