"""Tables of the star as the catalog says them: role, keys, columns and measures, all public facts.

A foreign key names rows of another table, and says what becomes of rows whose key finds none. A summary is a column
made of one person's rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, FiniteFloat, ValidationInfo, field_validator, model_validator

from dpsql.catalog.base import Exact, Model, OneOf, Problem, Text, nearest, refuse, short_for, to_units
from dpsql.catalog.columns import (
    DEFAULT_SCALE,
    DROP,
    LARGEST_SCALE,
    NEAREST,
    ORDERED,
    OTHER,
    Column,
    OutOfDomain,
)


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
        refuse({
            f"`out_of_domain: nearest` does not go with type {self.type}; write other or drop":
                self.out_of_domain.nearest and not self.ordered,
            "a summary is made of rows; remove `from` and `reported`":
                self.from_ is not None or self.reported is not None,
            "a summary has quantiles where it is an axis; remove `quantiles` and list it in `axes`": self.quantiles,
        })  # fmt: skip
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


def one_digit(number: float) -> float:
    """A number with one significant digit.

    >>> one_digit(16049), one_digit(600), one_digit(-0.047)
    (20000.0, 600.0, -0.05)
    """
    return float(f"{number:.0e}")


class PublicGuess(Model):
    """About how large a table is, in public: forecasts need it, and the release stores it.

    **Privacy**: one significant digit is kept; it must be public anyway, and not follow from the rows at hand.
    """

    units: int = Field(description="about how many privacy units own rows; one significant digit is kept")
    rows: int = Field(description="about how many rows there are")
    most_rows: int | None = Field(None, description="about the number of rows that hardly any unit exceeds")
    means: dict[str, FiniteFloat] = Field(
        {},
        description="column or measure that is summed: about the mean of its values, not 0; one digit is kept",
    )

    @model_validator(mode="after")
    def _of_one_digit(self) -> Self:
        if not 1 <= self.units <= self.rows <= 10**12:
            raise ValueError("`guess` needs at least one unit, and at least as many rows as units")
        if self.most_rows is not None and not self.units * self.most_rows >= self.rows >= self.most_rows:
            raise ValueError("`most_rows` is at least rows / units, and at most rows")
        for key in ("units", "rows", "most_rows"):
            if (number := getattr(self, key)) is not None:
                object.__setattr__(self, key, int(one_digit(number)))
        object.__setattr__(self, "means", {name: one_digit(mean) for name, mean in self.means.items()})
        return self


def with_people(catalog: Mapping[str, Any]) -> dict[str, Any]:
    """A catalog as it is written, each table with `people_of` in full: role, domains, place, and its key's owner.

    Args:
        catalog: as YAML or JSON has it; nothing is checked but names in a list of columns.

    Raises:
        Problem: there is no such table, or it does not declare a listed column.
    """
    tables, source = dict(catalog["tables"]), catalog.get("source")
    for name, table in catalog["tables"].items():
        of = table.get("people_of") if isinstance(table, dict) else None
        if of is None:
            continue
        rows = tables.get(of) if of != name else None
        if not isinstance(rows, dict):
            hint = nearest(str(of), tuple(other for other in tables if other != name))
            raise Problem(("tables", name, "people_of"), f"no other table `{of}`; {hint}")
        columns, domains = table.get("columns", {}), rows.get("columns") or {}
        if isinstance(columns, list):
            unknown = next((column for column in columns if column not in domains), None)
            if unknown is not None:
                reason = f"`{of}` declares no column `{unknown}`; {nearest(str(unknown), tuple(domains))}"
                raise Problem(("tables", name, "columns"), reason)
            # the mark beside the one domain that is written stands for both
            columns = {c: {k: v for k, v in domains[c].items() if k != "confirm"} for c in columns}
        tables[name] = {"role": DIMENSION.name, "private": True, **table, "columns": columns}
        tables[of] = {**rows, "foreign_keys": {table.get("key"): name, **(rows.get("foreign_keys") or {})}}
        if isinstance(source, dict):
            # A source in which a table reads what another one reads.
            written, csv = dict(source), source.get("csv")
            sections = [(written, "tables"), (written, "hive")]
            if isinstance(csv, dict):
                written["csv"] = dict(csv)
                sections.append((written["csv"], "columns"))
            for section, key in sections:
                places = section.get(key)
                if isinstance(places, dict) and of in places:
                    section[key] = {name: places[of], **places}
            source = written
    return {**catalog, "tables": tables} | ({} if source is None else {"source": source})


def _listed_columns(value: Any) -> Any:
    if isinstance(value, list):
        raise ValueError("a list of names goes with `people_of`; declare each column with its type")
    return value


class Table(Model):
    """One table of the star: fact, dimension or domain (a public list of values)."""

    role: Annotated[TableRole, OneOf(FACT, DIMENSION, DOMAIN)] = Field(
        description="rows that are counted, rows that these name, or a public list of values"
    )
    key: str | None = Field(None, description="the column that names a row; dimensions need it")
    private: bool | None = Field(
        None, description="facts and dimensions are private unless a dimension says false"
    )
    people_of: str | None = Field(
        None,
        description="the table whose rows make this one: a row for each value of `key`, of several values the least "
        "by its text",
    )
    written: Annotated[
        dict[str, Column],
        BeforeValidator(_listed_columns, json_schema_input_type=dict[str, Column] | list[str]),
    ] = Field(
        default_factory=dict,
        alias="columns",
        description="those that are asked about; under `people_of` names of columns of that table are enough",
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
        description="share of the table's budget that measures the rows beyond a number in max_ids: 0.05 unless "
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
    def summable(self) -> tuple[str, ...]:
        """Names of all that may be summed of its rows."""
        return (*(name for name, column in self.written.items() if column.measure), *self.measures)

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
        clash = sorted({*self.measures} & {*self.written})
        unknown = sorted({*self.guess.means} - {*self.summable}) if self.guess else []
        refuse({
            "a fact table is private; a public list of values is `role: domain`":
                self.role.counted and self.private is False,
            "a public table needs no `guess`; remove it": self.guess is not None and self.is_public,
            f"`guess.means`: `{''.join(unknown[:1])}` is no measure of the table": bool(unknown),
            "a domain table is published; remove `private: true` or use `role: dimension`":
                self.role.listed and bool(self.private),
            "a dimension needs `key: <column>`": self.role.named and self.key is None,
            f"`{''.join(clash[:1])}` is both a column and a measure; rename one": bool(clash),
        })  # fmt: skip
        return self
