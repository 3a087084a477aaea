"""Catalog models: tables, views and promise as the YAML names them, each valid by itself."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    Tag,
    field_validator,
    model_validator,
)

from dpsql.catalog.base import COUNT, Exact, MeasureName, Model, OneOf, Text, refuse, short_for
from dpsql.catalog.collection import Collection
from dpsql.catalog.columns import CutsField
from dpsql.catalog.source import Source
from dpsql.catalog.tables import Table, with_people
from dpsql.errors import CatalogError

DEFAULT_CELLS = 2**24
MOST_AXES = 8
MECHANISMS = (
    "auto", "lue_dptree", "struct_construct", "tree", "tents", "identity", "gaussian", "residual", "blocks", "signal",
    "diffhr", "asked",
)  # fmt: skip


class AxisSpec(Model):
    """An axis of a view: a column, or a public dimension at a grain."""

    axis: str = Field(
        min_length=1, description="table.column, foreign_key.column, or a public dimension with `by`"
    )
    by: tuple[str, ...] = Field(
        (), description="columns of a public dimension whose distinct values are the leaves"
    )
    cuts: CutsField | None = Field(None, description="coarser cuts than the column's own, for this view")
    workload: tuple[tuple[Text, Text, Exact], ...] = Field(
        (), description="a public query log: [lowest, highest] or [lowest, highest, weight] of each range"
    )

    @field_validator("workload", mode="before")
    @classmethod
    def _weights(cls, value: Any) -> Any:
        """A range without a weight counts once."""
        if not isinstance(value, list | tuple):
            return value
        return tuple(
            (*interval, 1) if isinstance(interval, list | tuple) and len(interval) == 2 else interval
            for interval in value
        )

    @model_validator(mode="after")
    def _one_form(self) -> Self:
        refuse({
            "the weight of a range in `workload` must be above 0": any(weight <= 0 for _, _, weight in self.workload),
            "`by` and `cuts` do not go together; keep one": bool(self.by and self.cuts),
            "a column is listed twice in `by`; list each once": len(set(self.by)) != len(self.by),
        })  # fmt: skip
        return self


def _shares(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        return value
    names = [str(name) for name in value]
    if len(set(names)) != len(names):
        raise ValueError("a measure is listed twice; list each once")
    return {name: Fraction(1, len(names)) for name in names}


class TreeMechanism(Model):
    """A tree on every axis of a view, of a shape that the catalog says; budgets follow how often a node is used."""

    tree: Literal["kary", "binary", "levels"] = Field(
        description="kary: each node falls into `arity` parts; binary: into halves; levels: the fewest levels that"
        " `arity` allows, with children shared out evenly over them"
    )
    arity: int | None = Field(
        None, ge=2, le=1024, description="most children of a node; default: the least error"
    )


def _ways(value: Any) -> Any:
    """The number 2, from text too."""
    if value is not None and str(value) != "2":
        raise ValueError("a cube has pairs of axes; write ways: 2")
    return value if value is None else 2


class View(Model):
    """View: a table, a few axes, and measures that split the view's share."""

    of: str = Field(description="the table whose rows are counted")
    axes: tuple[Annotated[AxisSpec, short_for("axis", str)], ...] = Field(
        min_length=1, max_length=MOST_AXES, description="columns, or public dimensions with `by`"
    )
    measures: Annotated[dict[MeasureName, Exact], BeforeValidator(_shares)] = Field(
        default_factory=lambda: {COUNT: Fraction(1)},
        description="a list of count, people (different units), table.column, squares(table.column) for its variance,"
        " or table.measure; under a delta with shares if wanted: without one, the count and the sums of a view share"
        " one draw",
    )
    share: Exact | None = Field(None, description="share of epsilon; views without one split the remainder")
    mechanism: Annotated[
        Annotated[Literal[MECHANISMS], Tag("word")]  # type: ignore[valid-type]
        | Annotated[TreeMechanism, Tag("tree")],
        Discriminator(lambda value: "tree" if isinstance(value, dict | Model) else "word"),
    ] = Field("auto", description="how it is measured; `auto` takes the least error")
    questions: tuple[tuple[tuple[tuple[tuple[int, int], ...], ...], ...], ...] = Field(
        (),
        description="of `mechanism: asked`: the only questions measured, each as disjoint boxes, each box as"
        " intervals [first, beyond last] of leaves on each axis; `dpsql buy` writes them",
    )
    ways: Annotated[Literal[2], BeforeValidator(_ways)] | None = Field(
        None,
        description="2: a cube: all sets of up to two of its axes, instead of all axes together (needs delta)",
    )
    data_dependent: Literal["refuse", "allow"] = Field(
        "refuse",
        description="allow: `auto` may take a mechanism that selects by noisy numbers, if its error is at most 1.1"
        " times the least without it",
    )
    nonnegative: bool | None = Field(
        None, description="store non-negative (biased) estimates too; by default of counts up to 2^20 cells"
    )
    cells: int = Field(
        DEFAULT_CELLS, ge=1, le=2**30, description="largest number of cells that may be published"
    )
    on_partial_bin: Literal["limit", "interpolate", "refuse"] | None = Field(
        None, description="bins that a statement cuts in this view; by default as the catalog says"
    )
    description: str = Field("", description="a sentence for analysts")

    @property
    def word(self) -> str:
        """The mechanism's word; a tree of a given shape goes by `tree`."""
        return "tree" if isinstance(self.mechanism, Model) else str(self.mechanism)

    @property
    def may_select(self) -> bool:
        """True if noisy numbers may choose what is measured."""
        return self.data_dependent == "allow"

    @property
    def tree(self) -> TreeMechanism | None:
        """The shape of its trees, where the catalog says one."""
        return self.mechanism if isinstance(self.mechanism, TreeMechanism) else None

    @property
    def together(self) -> int:
        """Axes that a statement may use together."""
        return self.ways or len(self.axes)

    @model_validator(mode="after")
    def _is_a_cube(self) -> Self:
        if self.ways is not None and self.ways >= len(self.axes):
            raise ValueError(f"`ways: {self.ways}` needs more than {self.ways} axes; remove it")
        if self.ways is not None and self.word not in ("auto", "residual"):
            raise ValueError("`ways` goes with `mechanism: auto`; remove one of them")
        return self

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        total = sum(self.measures.values(), Fraction(0))
        refuse({
            "a view needs a measure; write `measures: [count]`": not self.measures,
            "a measure's share must be above 0": any(share <= 0 for share in self.measures.values()),
            f"the shares of `measures` add up to {total}; keep them at 1 or less": total > 1,
            "`share` must be above 0 and at most 1": self.share is not None and not 0 < self.share <= 1,
            "`questions` and `mechanism: asked` go together; write both or neither":
                bool(self.questions) != (self.word == "asked"),
        })  # fmt: skip
        return self


DEFAULT_LEDGER = ".dpsql/ledger.duckdb"


MOST = 10_000
"""The largest cap; the ledger counts far above it. An epsilon of hundreds promises nothing."""


class Unit(NamedTuple):
    """Privacy unit: a person's rows together, or each row alone.

    Args:
        table: the people's table; None where each row is a unit.
        key: its key.
    """

    table: str | None
    key: str

    @property
    def name(self) -> str:
        """As the catalog writes it."""
        return self.key if self.table is None else f"{self.table}.{self.key}"

    def per(self, batch: str) -> str:
        """Protected unit if each batch is promised on its own; a row stands in one batch anyway."""
        return self.name if self.table is None else f"{self.name} per {batch}"


ROW = Unit(None, "row")


def _unit(value: Any) -> Unit:
    if isinstance(value, Unit):
        return value
    table, dot, key = str(value).partition(".")
    if str(value) != ROW.name and (not dot or "." in key):
        raise ValueError("`unit` is `row` or `table.key`")
    return Unit(table, key) if dot else ROW


class RowNumber(NamedTuple):
    """True if the number of rows may be told.

    Args:
        name: the catalog's word.
        told: it may.
    """

    name: str
    told: bool


SECRET, TOLD = RowNumber("private", told=False), RowNumber("public", told=True)


class Privacy(Model):
    """The promise: whose rows, which neighbours, how much; none of it has a default that spends.

    **Privacy**: `lineage`, `unit`, `neighbours`, `delta`, `key_delta` and `cap` are fixed at the lineage's first
    release.
    """

    lineage: str = Field(min_length=1, description="the people; every release about them draws on one cap")
    cap: Exact = Field(description="most that the lineage may ever spend: epsilon at this catalog's delta")
    unit: Annotated[
        Unit,
        PlainValidator(_unit, json_schema_input_type=str),
        PlainSerializer(lambda unit: unit.name, return_type=str),
    ] = Field(description="row, or table.key of the people's table")
    neighbours: Literal["add_remove", "replace_one"] = Field(
        "add_remove",
        description="neighbouring data sets: one unit added or removed, or one unit replaced",
    )
    epsilon: Exact | None = Field(
        None, description="spent by one release; there is no default: write it, or `releases`"
    )
    releases: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="instead of `epsilon`: number of releases that share the cap equally, for refreshes of one catalog",
    )
    delta: Exact = Field(
        Fraction(0), description="0: pure; above 0: Gaussian noise, counted on its exact curve"
    )
    key_delta: Exact = Field(
        Fraction(0),
        description="the part of delta that finding `categories: private` may ever spend; a tenth of delta where the "
        "lineage's first catalog has such a column, else 0",
    )
    min_people: int = Field(
        0,
        ge=0,
        le=MOST,
        description="readers hide numbers of fewer people by the noisy estimate; no privacy claim rests on it",
    )
    rows: Annotated[RowNumber, OneOf(SECRET, TOLD)] = Field(
        SECRET, description="public: the number of rows may be published"
    )
    confirm: bool = Field(False, description="the promise of a draft; publish refuses until removed")

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        amounts = {"cap": self.cap, "epsilon": self.epsilon}
        both = self.epsilon is not None and self.releases is not None
        refuse({
            "`epsilon` is missing; write what one release spends, or how many `releases` share the cap":
                self.epsilon is None and self.releases is None,
            **{f"`{key}` must be above 0 and at most {MOST}": amount is not None and not 0 < amount <= MOST
               for key, amount in amounts.items()},
            "`delta` must be 0 or a small number such as 1e-6": not 0 <= self.delta < Fraction(1, 10),
            "`key_delta` is a part of `delta`; write less, such as a tenth of it":
                not 0 <= self.key_delta < (self.delta or 1) or (self.key_delta > 0 and not self.delta),
            # under a delta it is mu^2 that is shared, and epsilons do not add up
            "`epsilon` and `releases` both say what a release spends; remove one of them": both and self.delta > 0,
            f"`epsilon` is not `cap` shared by `releases: {self.releases}`; remove one of them":
                both and (self.epsilon or 0) * (self.releases or 0) != self.cap,
        })  # fmt: skip
        return self


class Late(NamedTuple):
    """Treatment of rows of an earlier batch, or without a date.

    Args:
        name: the catalog's word.
        counted: whether they count in the batch that they arrive with.
    """

    name: str
    counted: bool


IN_BATCH, LEFT_OUT = Late("batch", True), Late("drop", False)


_TOTALS = ("running", "prefix", "range")


def _questions(value: Any) -> Any:
    """Kinds of question with their weights; a list weighs all alike.

    Raises:
        ValueError: a word that is no question.
    """
    weights = dict.fromkeys(value, 1) if isinstance(value, list | tuple) else value
    if weights == {}:
        raise ValueError(
            "`workload` names no question; remove it, or write for instance {running: 1, range: 1}"
        )
    for name in weights if isinstance(weights, dict) else ():
        if str(name) not in _TOTALS and not (str(name).isdecimal() and int(name) > 0):
            raise ValueError(
                f"`{name}` is not a question; write running, prefix, range, or a number of batches for their windows"
            )
    return weights


class Stream(Model):
    """A release that grows by batches along one time column; `dpsql append` makes it and adds to it."""

    column: str = Field(
        description="table.column of the time axis; its lower bound lies in the first batch, every view has it"
    )
    grain: Literal["hour", "day", "week", "month"] = Field("day", description="what one batch covers")
    strategy: Literal["auto", "tree", "fda", "prefix", "spectral"] = Field(
        "auto", description="what is measured over time; `auto` takes the least error"
    )
    horizon: int = Field(ge=1, le=2**20, description="batches planned for")
    ends: bool = Field(
        False,
        description="no batch comes after the horizon: `auto` may then take rows that need that, and noise drawn ahead",
    )
    workload: Annotated[
        dict[Text, Exact],
        BeforeValidator(_questions, json_schema_input_type=dict[Text, Exact] | list[Text]),
    ] = Field(
        {},
        description="weights of the questions: `running` (totals so far, when their batch arrives), `prefix` (later), "
        "`range`, or a number of batches (its windows), each with a weight; without it running, range and windows of "
        "the grain's usual lengths, all equal",
    )
    late: Annotated[Late, OneOf(IN_BATCH, LEFT_OUT)] = Field(
        LEFT_OUT,
        description="rows of an earlier batch, or without a date: counted in the batch they arrive with, or left out",
    )
    max_batches: int | None = Field(
        None,
        ge=1,
        description="batches in which one unit may appear, ever; without it a unit's rows of one batch are protected",
    )

    @model_validator(mode="after")
    def _askable(self) -> Self:
        for name, weight in self.workload.items():
            if weight <= 0:
                raise ValueError(f"the weight of `{name}` in `workload` must be above 0")
            if name not in _TOTALS and int(name) > self.horizon:
                raise ValueError(f"`workload: {name}` is longer than the horizon of {self.horizon} batches")
        return self


class CatalogFields(Model):
    """Fields of a catalog, each part valid by itself; `Catalog` checks that they fit each other."""

    dpsql: Literal[1] = Field(description="version of this format")
    name: str = Field(
        min_length=1,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="of the wide table, which joins the whole star",
    )
    population: str | None = Field(None, description="releases with one population may answer for each other")
    description: str = Field("", description="a sentence for analysts")
    ledger: Text = Field(DEFAULT_LEDGER, description="path of the ledger, beside the catalog")
    source: Source | None = Field(None, description="where raw rows are; publishing needs it")
    privacy: Privacy = Field(description="what is promised, and to whom")
    tables: dict[str, Table] = Field(min_length=1, description="the star: facts, dimensions, lists of values")
    views: dict[str, View] = Field(default_factory=dict, description="what is measured")
    collection: Collection | None = Field(None, description="people report for themselves")
    stream: Stream | None = Field(None, description="the release grows by batches")
    on_partial_bin: Literal["limit", "interpolate", "refuse"] = Field(
        "limit",
        description="bins that a statement cuts are interpolated; `limit` refuses answers more than half so,"
        " `refuse` all",
    )
    vouched: tuple[str, ...] = Field(
        (), description="written into a release: tables whose SQL only the curator checked (source.trusted)"
    )
    _file: Path | None = PrivateAttr(default=None)

    @model_validator(mode="before")
    @classmethod
    def _people_in_full(cls, values: Any) -> Any:
        written = isinstance(values, dict) and isinstance(values.get("tables"), dict)
        return with_people(values) if written else values

    @field_validator("dpsql", mode="before")
    @classmethod
    def _version(cls, value: Any) -> Any:
        if str(value) != "1":
            raise ValueError(f"format {value} is unknown; write `dpsql: 1`")
        return 1

    def raw_source(self) -> Source:
        """Source of raw rows.

        Raises:
            CatalogError: the catalog names no source, for instance since it was read from a release.
        """
        if self.source is None:
            raise CatalogError("the catalog has no `source`", hint="write source: {kind, root, tables}")
        return self.source

    def whole_source(self) -> Source:
        """Source of every table's raw rows; a collection's catalog may leave out those that people keep.

        Raises:
            CatalogError: the catalog names no source, or none for a table.
        """
        source = self.raw_source()
        for name in self.tables:
            if name not in source.tables:
                raise CatalogError(
                    f"source.tables: `{name}` has no file", hint=f"write `{name}: <file>` or a SELECT"
                )
        return source

    @property
    def public_tables(self) -> frozenset[str]:
        """Tables whose rows anybody may see."""
        return frozenset(name for name, table in self.tables.items() if table.is_public)

    @property
    def file(self) -> Path | None:
        """The YAML file that this catalog was read from, if any."""
        return self._file

    @property
    def shares(self) -> dict[str, Fraction]:
        """The part of epsilon of each view, as exact fractions that add up to at most 1."""
        declared = {name: view.share for name, view in self.views.items() if view.share is not None}
        undeclared = len(self.views) - len(declared)
        remaining = 1 - sum(declared.values(), Fraction(0))
        rest = remaining / undeclared if undeclared else remaining
        return {name: declared.get(name, rest) for name in self.views}

    def unconfirmed(self) -> tuple[str, ...]:
        """Key paths that still hold `confirm: true`; publishing refuses while there is one."""
        paths = ["privacy"] if self.privacy.confirm else []
        for table_name, table in self.tables.items():
            paths += [f"tables.{table_name}"] if table.confirm else []
            for kind, specs in table.marked.items():
                paths += [f"tables.{table_name}.{kind}.{n}" for n, spec in specs.items() if spec.confirm]
        return tuple(paths)

    def to_json(self) -> str:
        """The public part as canonical JSON: everything but where raw rows and the ledger are kept.

        `catalog_from_json` reads it back to an equal catalog (without `source` and `ledger`).
        """
        left_out = {"source", "ledger"}
        public = self.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=left_out)
        for name, table in self.tables.items():
            domains = self.tables[table.people_of].written if table.people_of else {}
            plain = {column: spec.model_copy(update={"confirm": False}) for column, spec in domains.items()}
            # one domain is written once, so that who moves a bound moves both
            if table.people_of and all(plain.get(column) == spec for column, spec in table.written.items()):
                public["tables"][name]["columns"] = list(table.written)
        return json.dumps(public, ensure_ascii=False, separators=(",", ":"))
