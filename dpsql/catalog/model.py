"""The catalog: one frozen value for the whole YAML file, and the choices that spend budget."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PrivateAttr, field_validator, model_validator

from dpsql.catalog.base import Model
from dpsql.catalog.checks import check_catalog
from dpsql.catalog.collection import Collection
from dpsql.catalog.queries import vouched_tables
from dpsql.catalog.scalars import Exact, Text
from dpsql.catalog.source import Source
from dpsql.catalog.tables import Table, View
from dpsql.errors import CatalogError

DEFAULT_LEDGER = ".dpsql/ledger.duckdb"


class Privacy(Model):
    """The promise: whose rows, which neighbours, how much; none of it has a default that spends.

    **Privacy**: `lineage`, `unit`, `neighbours`, `delta` and `cap` are fixed at the lineage's first release.
    """

    lineage: str = Field(min_length=1, description="the people; every release about them draws on one cap")
    cap: Exact = Field(description="most that the lineage may ever spend: epsilon at this catalog's delta")
    unit: str = Field(description="row, or table.key of the people's table")
    neighbours: Literal["add_remove", "replace_one"] = Field(
        "add_remove",
        description="data sets that may not be told apart: one unit more or less, or another in its place",
    )
    epsilon: Exact = Field(description="spent by one release; there is no default")
    delta: Exact = Field(Fraction(0), description="0: pure; above 0: zCDP is allowed")
    rows: Literal["private", "public"] = Field(
        "private", description="public: the number of rows may be told"
    )

    @model_validator(mode="after")
    def _ranges(self) -> Self:
        for key in ("cap", "epsilon"):
            if getattr(self, key) <= 0:
                raise ValueError(f"`{key}` must be above 0")
        if not 0 <= self.delta < Fraction(1, 10):
            raise ValueError("`delta` must be 0 or a small number such as 1e-6")
        if self.unit != "row" and self.unit.count(".") != 1:
            raise ValueError("`unit` is `row` or `table.key`")
        return self

    @property
    def unit_table(self) -> str | None:
        """The people's table, or None where each row is its own unit."""
        return None if self.unit == "row" else self.unit.split(".")[0]


_LATE = {"arrive": "batch", "refuse": "drop"}


def _late(value: Any) -> Any:
    """Two words for each rule: where the row goes, or what happens to it."""
    return _LATE.get(value, value) if isinstance(value, str) else value


class Stream(Model):
    """A release that grows by batches along one time column; `dpsql append` makes it and adds to it."""

    column: str = Field(
        description="table.column of the time axis; its lower bound lies in the first batch, every view has it"
    )
    grain: Literal["hour", "day", "week", "month"] = Field("day", description="what one batch covers")
    strategy: Literal["auto", "chain", "fenwick", "fda", "prefix", "toeplitz"] = Field(
        "auto", description="what is measured over time; `auto` is what errs least"
    )
    horizon: int = Field(ge=1, le=2**20, description="batches planned for")
    late: Annotated[
        Literal["batch", "drop"],
        BeforeValidator(_late, json_schema_input_type=Literal["batch", "drop", "arrive", "refuse"]),
    ] = Field(
        "drop",
        description="rows of an earlier batch, or without a date: counted in the batch they arrive with "
        "(`batch` or `arrive`), or left out (`drop` or `refuse`)",
    )
    max_batches: int | None = Field(
        None,
        ge=1,
        description="batches in which one unit may appear, ever; without it a unit's rows of one batch are protected",
    )


class Catalog(Model):
    """A whole catalog. Build it with `load_catalog` or `catalog_from_json`."""

    dpsql: Literal[1] = Field(description="version of this format")
    name: str = Field(
        min_length=1,
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
        description="of the wide table, which joins the whole star",
    )
    population: str | None = Field(None, description="releases with one population may answer for each other")
    description: str = Field("", description="a sentence for those who ask")
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

    @field_validator("dpsql", mode="before")
    @classmethod
    def _version(cls, value: Any) -> Any:
        if str(value) != "1":
            raise ValueError(f"format {value} is not known; write `dpsql: 1`")
        return 1

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        check_catalog(self)
        if self.source is not None:
            object.__setattr__(self, "vouched", vouched_tables(self))
        return self

    def raw_source(self) -> Source:
        """Where raw rows are.

        Raises:
            CatalogError: the catalog names no source, for instance since it was read from a release.
        """
        if self.source is None:
            raise CatalogError("the catalog has no `source`", hint="write source: {kind, root, tables}")
        return self.source

    def whole_source(self) -> Source:
        """Where the raw rows of every table are; a collection's catalog may leave out those that people keep.

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
        given = {name: view.share for name, view in self.views.items() if view.share is not None}
        rest = len(self.views) - len(given)
        left = 1 - sum(given.values(), Fraction(0))
        return {name: given.get(name, left / rest if rest else left) for name in self.views}

    def unconfirmed(self) -> tuple[str, ...]:
        """Key paths that still hold `confirm: true`; publishing refuses while there is one."""
        found: list[str] = []
        for table_name, table in self.tables.items():
            found += [f"tables.{table_name}"] if table.confirm else []
            for kind, parts in (("columns", table.columns), ("measures", table.measures)):
                found += [f"tables.{table_name}.{kind}.{n}" for n, part in parts.items() if part.confirm]
        return tuple(found)

    def to_json(self) -> str:
        """The public part as canonical JSON: everything but where raw rows and the ledger are kept.

        `catalog_from_json` reads it back to an equal catalog (without `source` and `ledger`).
        """
        public = self.model_dump(
            mode="json", by_alias=True, exclude_defaults=True, exclude={"source", "ledger"}
        )
        return json.dumps(public, ensure_ascii=False, separators=(",", ":"))


def spec_hash(catalog: Catalog) -> str:
    """What makes two publishes the same: the public part and which tables are read, not where they lie.

    Args:
        catalog: any catalog.

    Returns:
        A SHA-256 in hex; the order of keys and the way numbers are written do not change it.

    **Privacy**: a function of the catalog alone, never of data.
    """
    tables = {} if catalog.source is None else dict(catalog.source.tables)
    text = json.dumps([json.loads(catalog.to_json()), tables], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
