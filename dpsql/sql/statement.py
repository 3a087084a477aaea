"""Interface between the SQL side and the planner, with the state of rewriting one statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from dpsql.errors import NotSupportedError
from dpsql.planner.block import Block, ErrorOf, Form, Value
from dpsql.planner.schema import Schema
from dpsql.row_expressions.expression import Node
from dpsql.sql.arithmetic import Kind

MOST_BLOCKS = 64
"""Blocks of one statement: what carries their errors grows with the square."""
AT = "dp_at"
"""Row number of a block's relation; carried through the statement so that error bars find their row."""
ADDED = "dp_added"
"""Bits of the keys whose group holds leaves that the catalog adds alone (`sql.added`)."""


@dataclass(frozen=True)
class Statement:
    """A statement, taken apart.

    Args:
        blocks: the aggregate blocks.
        outer: DuckDB text over the relations `dp_block_<b>` (columns dp_at, k0.., v0..), without its WITH clause.
        common: that clause's parts.
        names: output columns.
        forms: for each output column, block number -> form; empty where the error is not defined.
        carriers: hidden output columns behind the named ones: the block each one numbers rows of.
        catalog_tables: whether information_schema is read.
        public_tables: public tables whose rows are read.
        direct: the one relation's columns, hidden ones included, where the outer statement only picks them.
        ordered: whether it sorts anything.
        asks_errors: whether it holds functions of an error that follow several groups, and is to be carried out as
            `sql.carry` says.
        keeps: whether a clause of the outer statement keeps some of its rows.
        moment: what its clock shows, in UTC; None where it does not read the clock.
        notes: what a reader should know of the rows that were asked for in other words.
        counting: for each output column how it depends on how many groups there are (`sql.added`); empty where nothing
            in the statement does, so that it reads no `dp_added`.
        key_texts: bits of keys, as in `dp_added`, each with a text that conditions on groups compare it with; an empty
            one for any other condition.
    """

    blocks: tuple[Block, ...]
    outer: str
    common: tuple[str, ...]
    names: tuple[str, ...]
    forms: tuple[dict[int, Form], ...]
    carriers: tuple[int, ...]
    catalog_tables: bool
    public_tables: tuple[str, ...]
    direct: tuple[str, ...]
    ordered: bool
    asks_errors: bool
    keeps: bool
    moment: datetime | None = None
    notes: tuple[str, ...] = ()
    counting: tuple[str, ...] = ()
    key_texts: tuple[tuple[int, str], ...] = ()

    @property
    def block_errors(self) -> bool:
        """True if a block is asked for errors of its values."""
        return any(isinstance(value, ErrorOf) for block in self.blocks for value in block.values)

    @property
    def text(self) -> str:
        return with_sources(self.common, self.outer)


@dataclass
class BlockDraft:
    """A block while its statement is being rewritten: values are added as they are met."""

    block: Block
    values: list[Value] = field(default_factory=list)

    def value(self, value: Value) -> str:
        """The column that will hold a value."""
        if value not in self.values:
            self.values.append(value)
        return f"v{self.values.index(value)}"


@dataclass
class RewrittenQuery:
    """A rewritten query: its tree and what its columns are.

    Args:
        node: the tree; its projections are the named columns, then the hidden ones.
        names: output columns.
        forms: for each of them block number -> form.
        carriers: hidden column name -> block number.
        block: the block that this query is, or None.
        children: alias -> shape of each source in FROM, or branches of a set operation.
        unique: columns that no two rows have alike, in lower case; None where nothing says.
        kinds: for each output column the kind of its values; empty where nothing says.
    """

    node: Node
    names: list[str]
    forms: list[dict[int, Form]]
    carriers: dict[str, int] = field(default_factory=dict)
    block: int | None = None
    children: list[tuple[str, RewrittenQuery]] = field(default_factory=list)
    unique: frozenset[str] | None = None
    kinds: list[Kind | None] = field(default_factory=list)


@dataclass
class Context:
    """The state of one rewriting.

    Args:
        schema: the star; while a SELECT over a named release's rows is rewritten, that release's.
        text: the statement.
        carries: whether functions of an error all stay for `sql.carry`, since no one view holds a block's value.
        release: the name of the release whose rows are being read; empty where the statement names none.
        drafts: its blocks so far.
        catalog_tables: whether information_schema is read.
        public_tables: public tables whose rows are read.
        hidden: how many names were made up.
    """

    schema: Schema
    text: str
    carries: bool = False
    release: str = ""
    drafts: list[BlockDraft] = field(default_factory=list)
    catalog_tables: bool = False
    public_tables: list[str] = field(default_factory=list)
    hidden: int = 0

    def add(self, draft: BlockDraft) -> None:
        """One more block.

        Raises:
            NotSupportedError: there are too many.
        """
        if len(self.drafts) == MOST_BLOCKS:
            raise NotSupportedError(
                f"the statement asks more than {MOST_BLOCKS} questions", hint="use GROUP BY, or ask in parts"
            )
        self.drafts.append(draft)

    def named(self, table: Node) -> Schema:
        """The star that a table stands in: that of the release which its qualifier names."""
        return self.schema.named.get(table.text("db").lower(), self.schema)

    @contextmanager
    def reading(self, release: str) -> Iterator[None]:
        """Rewrite what is over the rows of a named release; of the statement's own where the name is empty."""
        previous = self.schema, self.release
        star = self.schema.named.get(release, self.schema)
        self.schema, self.release = replace(star, named=self.schema.named), release
        try:
            yield
        finally:
            self.schema, self.release = previous

    def number(self) -> int:
        """A number that no other name of the statement has."""
        self.hidden += 1
        return self.hidden

    def fresh(self) -> str:
        """A hidden column's name that no user wrote."""
        return f"dp_hidden_{self.number()}"


class Scope(NamedTuple):
    """CTEs in sight by lower-case name: those over rows of people, to be unwrapped, and those that are answers."""

    rows: dict[str, Node]
    answers: dict[str, RewrittenQuery]

    def holds(self, name: str) -> bool:
        """True if there is one of that name."""
        return name.lower() in self.rows or name.lower() in self.answers


def with_sources(definitions: Sequence[str], text: str) -> str:
    """A statement with a WITH clause."""
    return f"WITH {', '.join(definitions)} {text}" if definitions else text
