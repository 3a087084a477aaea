"""Needs of statements, read against a scaffold plan in which every column that they name is an axis by itself.

A public table is an axis by its key, which tells all of its columns; a private column is as fine as its values. Which
leaves a question takes then says where an axis must be cut, and which columns of a public table it looks at.
Expressions that statements sum and no table declares become measures, with the bounds that follow from the columns'
own.

**Privacy**: reads statements, the catalog and public tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from math import floor
from typing import Any, TypeVar

import numpy as np

from dpsql.axis.model import OrderedRule
from dpsql.catalog import Catalog, made_view
from dpsql.catalog.base import COUNT, MeasureName, Problem
from dpsql.catalog.checks import plain_name
from dpsql.catalog.columns import LARGEST_LEAVES, Column, Cuts
from dpsql.catalog.derived import with_square
from dpsql.catalog.graph import KeyPath, of_other_units, paths_to, reachable
from dpsql.catalog.summaries import counts_rows
from dpsql.catalog.tables import TRUNCATE, Measure, Table
from dpsql.central.plan import fits
from dpsql.central.planned import Bounds
from dpsql.curator.dry_release import Priced
from dpsql.engines.registry import Engine
from dpsql.errors import Error, NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.planner.block import Block
from dpsql.planner.plan import ReleaseView as AskedView
from dpsql.planner.plan import ViewPlan, conditions, make_plan, place
from dpsql.planner.quantiles import known_rows, quantiles_of
from dpsql.planner.schema import ColumnRef, Term, predicates
from dpsql.row_expressions import free_name
from dpsql.row_expressions.expression import COMPARISONS, calendar_field, parse_one
from dpsql.row_expressions.rowlocal import is_select
from dpsql.sql.moments import Range, Summed, range_of, same_expression, squared, summed_expressions
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement

PLENTY = Fraction(2**10)
"""Epsilon of the scaffold: many small shares must leave the noise of squares room in 64 bits."""

COARSE = 2**12
"""Leaves of the scaffold on axes with too many numbers: comparisons say where they are cut."""

_WORD = re.compile(r'"([^"]+)"|([A-Za-z_][A-Za-z0-9_]*)')


@dataclass(frozen=True)
class ScaffoldAxis:
    """One axis of the scaffold: a private column, or a public table by its key.

    Args:
        of: the counted table.
        path: foreign keys to the axis's table.
        table: that table.
        column: the private column; None for a public table.
    """

    of: str
    path: KeyPath
    table: str
    column: str | None


@dataclass(frozen=True, eq=False)
class Need:
    """Needs of one aggregate block from one table.

    Args:
        of: the table.
        columns: for each axis that it looks at the columns: (table, column); none where only a join is checked.
        ends: for each ordered private axis the units at which a question begins or ends.
        measures: what is counted and summed; none where values are listed.
        sql, number: the statement, and which of its blocks this is.
        block: that block; of a quantile the one that counts its rows.
        of_quantile: whether the rows counted are those that a quantile is of.
    """

    of: str
    columns: Mapping[ScaffoldAxis, frozenset[tuple[str, str]]]
    ends: Mapping[ScaffoldAxis, frozenset[int]]
    measures: tuple[MeasureName, ...]
    sql: str
    number: int
    block: Block
    of_quantile: bool = False

    @property
    def places(self) -> frozenset[ScaffoldAxis]:
        return frozenset(self.columns)


@dataclass(frozen=True)
class DesignQuestion:
    """A statement as it was read.

    Args:
        sql: the statement.
        needs: for each aggregate block one of its sums and one of each quantile; none where the catalog alone answers.
        refusal: why no view can serve it, or None.
        ties: advice on comparisons of columns of two axes.
    """

    sql: str
    needs: tuple[Need, ...]
    refusal: str | None = None
    ties: tuple[str, ...] = ()


def named(statements: Sequence[str]) -> frozenset[str]:
    """Every word in the statements, in small letters."""
    words = {(a or b).lower() for text in statements for a, b in _WORD.findall(text)}
    return frozenset((*words, *map(plain_name, words)))


def places_of(catalog: Catalog, public: Engine, statements: Sequence[str]) -> tuple[ScaffoldAxis, ...]:
    """The axes that statements may be about: columns that they name, of tables that lead from a counted one.

    Statements that name no column with a domain may be about any: all rows are counted along each.

    Args:
        catalog: the catalog.
        public: its public tables, opened.
        statements: SQL.
    """
    words = named(statements)
    tables = [
        of for of, table in catalog.tables.items()
        if not table.is_public and (of.lower() in words or (catalog.name.lower() in words and table.role.counted))
    ]  # fmt: skip
    counted = [of for of in tables if _may_be_counted(catalog, of, tables)]
    every = words.union(*({name.lower() for name in catalog.tables[of].columns} for of in tables))
    for columns in (words, every):
        places = [place for of in counted for place in _places_from(catalog, public, of, columns)]
        if places:
            break
    return tuple(sorted(places, key=lambda place_: _levels(catalog, place_)))


def _levels(catalog: Catalog, place_: ScaffoldAxis) -> int:
    """Columns that an axis holds: a column stands on the axis that has the fewest others."""
    axis = None if place_.column is None else catalog.tables[place_.table].columns[place_.column].axis
    return 1 if axis is None else len(axis.levels)


def _may_be_counted(catalog: Catalog, of: str, tables: Sequence[str]) -> bool:
    """True if views may count a table beside the others: its rows lead to the unit, or no other's view joins
    them."""
    unit = catalog.privacy.unit.table
    if unit is None:
        return not any(of in reachable(catalog, table).values() for table in tables if table != of)
    chosen = catalog.tables[of].unit_path
    return of == unit or chosen != () or len(paths_to(catalog, of, unit)) == 1


def _places_from(catalog: Catalog, public: Engine, of: str, words: frozenset[str]) -> Iterator[ScaffoldAxis]:
    tables = reachable(catalog, of)
    for path, name in tables.items():
        if any(of_other_units(catalog, of, path[: hop + 1]) for hop in range(len(path))):
            continue
        table = catalog.tables[name]
        if table.is_public:
            arms = [t for p, t in tables.items() if p[: len(path)] == path]
            arm_columns = {c.lower() for arm in arms for c in (*public.columns.get(arm, {}), arm)}
            inside = any(catalog.tables[tables[path[:n]]].is_public for n in range(len(path)))
            if arm_columns & words and not inside:
                yield ScaffoldAxis(of, path, name, None)
            continue
        of_rows = of != name and name == catalog.privacy.unit.table
        told = [column for column, spec in table.columns.items() if spec.has_domain]
        columns = [column for column in told if not (of_rows and counts_rows(table, column))]
        derived = [c for c in columns if c in table.derive and _may_be_read(table.derive[c], words)]
        named_columns = [*derived, *(c for c in columns if c.lower() in words and c not in derived)]
        fewest = sorted(columns, key=lambda c: _leaves(table.columns[c]))[:1]
        smallest = fewest if name.lower() in words else []
        for column in named_columns or smallest:
            yield ScaffoldAxis(of, path, name, column)


def _may_be_read(expression: str, words: frozenset[str]) -> bool:
    """True if statements may hold an expression: all of its words, or the column of which it is a calendar's
    field."""
    held = calendar_field(parse_one(expression))
    return named([expression]) <= words or (held is not None and held.column.lower() in words)


def _leaves(column: Column) -> int:
    """Leaves of a column; texts that come from a table are taken for many."""
    if column.ordered:
        low, high = column.bounds
        return high - low + 1
    return LARGEST_LEAVES if column.from_ is not None else column.leaves


def scaffold(catalog: Catalog, places: Sequence[ScaffoldAxis]) -> Catalog:
    """The catalog with a view for each place, measured in the cheapest way; it is never published."""
    views = {}
    for number, place_ in enumerate(places):
        table = catalog.tables[place_.of]
        summed = {c: Bounds(*spec.bounds, spec.digits) for c, spec in table.columns.items() if spec.measure}
        summed |= {m: Bounds(*spec.bounds, spec.scale) for m, spec in table.measures.items()}
        # sums that would not fit at any budget are refused where they are asked, and nowhere else
        sums = [f"{place_.of}.{name}" for name, bounds in summed.items() if fits(bounds.reach, 1, PLENTY)]
        axis: dict[str, Any] = {"axis": ".".join((*place_.path, *([place_.column] if place_.column else [])))}
        axis |= {} if place_.column else {"by": [catalog.tables[place_.table].key]}
        described = {"of": place_.of, "axes": [axis], "measures": ["count", *sums], "mechanism": "identity"}
        views[f"place {number}"] = made_view(f"place {number}", described)
    cheapest, tables = {"max_ids": 1, "bounding": TRUNCATE, "clipped_share": None}, {}
    for name, table in catalog.tables.items():
        written = {c: _finest(spec) for c, spec in table.written.items()}
        summaries = {c: _finest(spec) for c, spec in table.summaries.items()}
        tables[name] = table.model_copy(update={"written": written, "summaries": summaries, **cheapest})
    privacy = catalog.privacy.model_copy(update={"epsilon": PLENTY, "cap": PLENTY, "releases": None})
    return catalog.model_copy(update={"views": views, "tables": tables, "privacy": privacy})


C = TypeVar("C", bound=Column)


def _finest(column: C) -> C:
    """A column with a leaf for each of its values, where they are not too many."""
    if not column.ordered or not column.has_domain:
        return column
    few = _leaves(column) <= LARGEST_LEAVES
    if column.cuts is not None:
        return column.model_copy(update={"cuts": None}) if few else column
    if few:
        return column
    units = Decimal(-(-_leaves(column) // COARSE))
    width = "day" if column.type == "timestamp" else f"{units.scaleb(-column.digits):f}"
    return column.model_copy(update={"cuts": Cuts.model_validate({"width": width})})


def read_questions(
    priced: Priced, axes: Mapping[ScaffoldAxis, int], answerer: ReleaseEngine, statements: Sequence[str]
) -> tuple[DesignQuestion, ...]:
    """Read the needs of each statement.

    Args:
        priced: the scaffold's plan.
        axes: its places -> the axis there.
        answerer: over its dry release.
        statements: SQL.
    """
    return tuple(map(_Reader(priced, axes, answerer).question, statements))


class _Reader:
    """The scaffold, opened; fields as of `read_questions`."""

    def __init__(self, priced: Priced, axes: Mapping[ScaffoldAxis, int], answerer: ReleaseEngine) -> None:
        self.priced, self.axes, self.answerer = priced, axes, answerer

    def question(self, text: str) -> DesignQuestion:
        """A statement, or why it is refused."""
        ties: tuple[str, ...] = ()
        try:
            statement = split_statement(parse(text, ""), self.answerer.schema, text)
            ties = tuple(self._as_column(block, tie) for block in statement.blocks for tie in block.ties)
            needs = [need for i, block in enumerate(statement.blocks) for need in self._needs(block, text, i)]
            return DesignQuestion(text, tuple(needs), None, ties)
        except Error as error:
            return DesignQuestion(text, (), str(error), ties)

    def _as_column(self, block: Block, tie: tuple[ColumnRef, str, ColumnRef]) -> str:
        """Advice to make one column of a comparison, in place of all pairs of two columns' values."""
        (left, word, right), root, catalog = tie, block.root, self.priced.plan.catalog
        near, far = sorted((left, right), key=lambda ref: len(ref.path))
        truth = f"{left.table}.{left.column} {COMPARISONS[word]} {right.table}.{right.column}"
        name = f"{left.column}_{word.lower()}_{right.column}"
        source = catalog.source
        place = "" if source is None or source.kind.is_server else source.tables.get(root, "")
        how = f"compute it where {root} is written"
        if place and near.path == far.path:
            how = f"write `derive: {{{name}: {left.column} {COMPARISONS[word]} {right.column}}}` in tables.{near.table}"
        elif place and not is_select(place) and len(far.path) == 1 and catalog.tables[far.table].is_public:
            row = f"SELECT {root}.*, {truth} AS {name} FROM '{place}' AS {root}"
            key = f"{root}.{far.path[0]} = {far.table}.{catalog.tables[far.table].key}"
            how = f"read {root} in `source` as `{row} LEFT JOIN {far.table} ON {key}`"
        what = f"{truth} is summed over all pairs of values, and errs less as a column of its own"
        return f"{what}: {how}, declare `{name}: {{type: bool, nullable: true}}`, and ask for {name}"

    def _needs(self, block: Block, text: str, number: int) -> Iterator[Need]:
        """Needs of a block's sums or listed values, and of each of its quantiles."""
        quantiles = quantiles_of(block)
        if not quantiles or any(value.terms for value in block.values):
            yield self._need(block, text, number)
        for quantile in quantiles:
            need = self._need(known_rows(quantile.expression, block), text, number)
            yield replace(need, of_quantile=True)

    def _need(self, block: Block, text: str, number: int) -> Need:
        terms = [] if block.listing else list(dict.fromkeys(t for v in block.values for t in v.terms))
        root_axes = {p: i for p, i in self.axes.items() if p.of.lower() == block.root.lower()}
        if not terms:
            return self._listing(block, text, number)
        if not root_axes:
            raise NoViewError(
                f"rows of {block.root} cannot be counted alongside those of tables that join it, or have no domain",
                hint=self.answerer.schema.people_hint(block.root)
                or f"declare domains in tables.{block.root}; under `unit: row` ask it in a catalog of its own",
            )
        view = AskedView("", block.root, tuple(root_axes.values()), {}, 0)
        placed = place(block, terms, view, self.answerer.release, self.answerer.schema)
        if isinstance(placed, str):
            raise self._undeclared(next(ref for ref in block.columns if str(ref) == placed))
        columns: dict[ScaffoldAxis, set[tuple[str, str]]] = {}
        by_axis = {i: p for p, i in root_axes.items()}
        for at, (position, _) in placed.items():
            ref = block.columns[at]
            if not ref.partner and position is not None:
                columns.setdefault(by_axis[view.axes[position]], set()).add((ref.table, ref.column))
        columns, found = _without_coarser(columns, self._held), self.answerer.schema.found
        for path in (ref.path for ref in block.columns if ref.partner):
            if (block.root.lower(), path) not in found and not any(_covers(p, path) for p in columns):
                columns.setdefault(self._along(path, root_axes), set())
        columns = columns or {self._shortest(root_axes): set()}
        view_axes = tuple(root_axes[p] for p in columns)
        plan = self._plan(block, terms, AskedView("", view.of, view_axes, {}, 0))
        ends = {p: self._ends(plan, terms, i) for i, p in enumerate(columns)}
        for place_, constants in self._compared(block, terms, columns).items():
            ends[place_] = constants
        measures = dict.fromkeys([COUNT, *(term.measure for term in terms)])
        return Need(
            next(iter(columns)).of, {p: frozenset(c) for p, c in columns.items()},
            {p: e for p, e in ends.items() if e is not None}, tuple(measures), text, number, block,
        )  # fmt: skip

    def _listing(self, block: Block, text: str, number: int) -> Need:
        """Columns whose values are listed: an axis of any view tells them."""
        columns: dict[ScaffoldAxis, frozenset[tuple[str, str]]] = {}
        for ref in block.columns:
            occurrences = self.answerer.schema.anywhere(ref, block.root)
            place_ = next((p for p, i in self.axes.items() if i in [axis for axis, _ in occurrences]), None)
            if place_ is None:
                raise self._undeclared(ref)
            columns[place_] = columns.get(place_, frozenset()) | {(ref.table, ref.column)}
        of = next((p.of for p in columns), block.root)
        return Need(of, columns, {}, (), text, number, block)

    def _undeclared(self, ref: ColumnRef) -> NoViewError:
        """A column that no axis can hold: a key, whose values are people or things, or one without a domain."""
        if ref.partner:
            return NoViewError(
                f"no axis says which rows have {ref}",
                hint="declare a column of the joined table, or write `on_missing: drop` at the foreign key",
            )
        name = self.answerer.schema.twin(ref)
        if name != ref:
            return NoViewError(
                f"no public list says which values {name.table}.{name.column} has",
                hint=f"declare them as a column of tables.{name.table}, or `private: false` there if anybody may see "
                f"its rows; to count different ones write `unit: {name.table}.{name.column}`, and `people` in a view",
            )
        return NoViewError(f"{ref} has no domain", hint="declare its bounds or categories in the catalog")

    def _held(self, place_: ScaffoldAxis) -> frozenset[tuple[str, str]]:
        """The columns that an axis tells."""
        return frozenset((c.table, c.column) for c in self.answerer.release.axes[self.axes[place_]].columns)

    def _shortest(self, places: Iterable[ScaffoldAxis]) -> ScaffoldAxis:
        return min(places, key=lambda p: self.answerer.release.axes[self.axes[p]].leaves)

    def _along(self, path: KeyPath, root_axes: Mapping[ScaffoldAxis, int]) -> ScaffoldAxis:
        """The shortest axis beyond a join; where it is kept without MISSING, one farther out says so too."""
        farther = [p for p in root_axes if p.path[: len(path)] == path]
        return self._shortest([p for p in root_axes if _covers(p, path)] or farther)

    def _plan(self, block: Block, terms: Sequence[Term], view: AskedView) -> ViewPlan:
        release, schema = self.answerer.release, self.answerer.schema
        placed = place(block, terms, view, release, schema)
        if isinstance(placed, str):
            raise NoViewError(f"{placed} is on no axis", hint="declare its domain in the catalog")
        return make_plan(block, terms, view, placed, release).by_leaf

    def _ends(self, plan: ViewPlan, terms: Sequence[Term], position: int) -> frozenset[int] | None:
        """The units at which a question begins or ends on an ordered axis; None elsewhere."""
        planned = self.priced.plan.axes[plan.view.axes[position]]
        rule = planned.axis.rule
        if not isinstance(rule, OrderedRule):
            return None
        values = len(rule.starts)
        ends: set[int] = set()
        for term in terms:
            for box in plan.boxes_of(term.condition):
                mask = plan.box_masks(box)[position][:, :values]
                change = np.flatnonzero(np.any(np.diff(mask, axis=1) != 0, axis=0)) + 1
                ends |= {int(rule.starts[i]) for i in change}
        return frozenset(ends)

    def _compared(
        self, block: Block, terms: Sequence[Term], places: Iterable[ScaffoldAxis]
    ) -> dict[ScaffoldAxis, frozenset[int]]:
        """Ends on axes with more numbers than leaves: the constants that their columns are compared with."""
        ends_by_place: dict[ScaffoldAxis, set[int]] = {}
        coarse = {p: d for p in places if (d := self._digits(p)) is not None}
        for predicate in (p for condition in conditions(block, terms) for p in predicates(condition)):
            for comparison in predicate.expression.comparisons:
                ref = block.columns[comparison.column]
                for place_, digits in coarse.items():
                    here = (ref.path, ref.column) == (place_.path, place_.column)
                    if here and isinstance(comparison.constant, int | Decimal):
                        constant = Fraction(comparison.constant) * 10**digits
                        ends_by_place.setdefault(place_, set()).update(_jump(comparison.operator, constant))
        return {p: frozenset(ends) for p, ends in ends_by_place.items()}

    def _digits(self, place_: ScaffoldAxis) -> int | None:
        """Digits after the point of an axis of numbers that has not a leaf for each of them; None of any other."""
        planned = self.priced.plan.axes[self.axes[place_]]
        rule, spec = planned.axis.rule, planned.resolved.spec
        if not isinstance(rule, OrderedRule) or spec is None or spec.type not in ("int", "decimal"):
            return None
        return None if int(rule.starts[-1] - rule.starts[0]) + 1 == len(rule.starts) else spec.digits


def _without_coarser(
    columns: dict[ScaffoldAxis, set[tuple[str, str]]],
    columns_of: Callable[[ScaffoldAxis], frozenset[tuple[str, str]]],
) -> dict[ScaffoldAxis, set[tuple[str, str]]]:
    """Axes without those whose columns another one tells too: a city's axis tells its nation."""
    finest = dict(columns)
    for place_, place_columns in columns.items():
        others = (p for p in finest if p != place_ and p.path == place_.path)
        finer = (p for p in others if place_columns <= columns_of(p))
        if finer_place := next(finer, None):
            finest[finer_place] = finest[finer_place] | finest.pop(place_)
    return finest


def _covers(place_: ScaffoldAxis, path: KeyPath) -> bool:
    """True if an axis tells which rows find a partner along a path: it lies at its end, or is a public table on
    it."""
    return place_.path == path or (place_.column is None and path[: len(place_.path)] == place_.path)


def _jump(operator: Callable[[Any, Any], Any], constant: Fraction) -> list[int]:
    """The whole numbers at which a comparison with a constant changes its truth.

    >>> from operator import ge, le
    >>> _jump(ge, Fraction(5)), _jump(le, Fraction(5)), _jump(ge, Fraction(11, 2))
    ([5], [6], [6])
    """
    at = (floor(constant), floor(constant) + 1)
    return [unit for unit in at if bool(operator(unit, constant)) != bool(operator(unit - 1, constant))]


NewMeasures = dict[str, dict[str, Measure]]
"""Table -> name -> measure."""


def new_measures(catalog: Catalog, statements: Sequence[str]) -> NewMeasures:
    """Measures that would let statements be answered, or answered with less noise.

    Args:
        catalog: the catalog.
        statements: SQL.
    """
    measures: NewMeasures = {}
    for text in statements:
        try:
            summed = list(summed_expressions(text))
        except Error:
            continue  # whoever reads the statement says what is wrong
        for expression in summed:
            for name, table in catalog.tables.items():
                ranges = column_ranges(table)
                told = not table.is_public and expression.columns <= ranges.keys()
                bounds = range_of(expression.sql, ranges) if told else None
                held = {**table.measures, **measures.get(name, {})}
                if bounds is None or any(same_expression(m.expr, expression.sql) for m in held.values()):
                    continue
                lower, upper = (decimal_text(end, bounds.scale) for end in (bounds.low, bounds.high))
                said = {"expr": expression.sql, "scale": bounds.scale, "lower": lower, "upper": upper}
                measures.setdefault(name, {})[_name(expression, table, held)] = Measure.model_validate(said)
    return measures


def squares(catalog: Catalog, statements: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Measures, as (table, column), of whose values a statement asks a variance; the narrowest first.

    Args:
        catalog: the catalog.
        statements: SQL.
    """
    columns: set[str] = set()
    for text in statements:
        with suppress(Error):  # whoever reads the statement says what is wrong
            columns |= squared(text)
    widths = {
        (name, column): spec.bounds[1] - spec.bounds[0]
        for name, table in catalog.tables.items()
        for column, spec in table.columns.items()
        if spec.measure and column.lower() in columns
    }
    return sorted(widths, key=lambda pair: widths[pair])


def with_squares(catalog: Catalog, wanted: Sequence[tuple[str, str]]) -> Catalog:
    """The catalog with squares of measures; those with too many digits are refused where they are asked."""
    tables = dict(catalog.tables)
    for name, column in wanted:
        with suppress(Problem):
            tables[name] = with_square(tables[name], column, ())
    return catalog.model_copy(update={"tables": tables})


def with_measures(catalog: Catalog, new: NewMeasures) -> Catalog:
    """The catalog with them."""
    tables = {
        name: table.model_copy(update={"measures": {**table.measures, **new.get(name, {})}})
        for name, table in catalog.tables.items()
    }
    return catalog.model_copy(update={"tables": tables})


def column_ranges(table: Table) -> dict[str, Range]:
    """Ranges of a table's numbers by column, in lower case."""
    ranges = {}
    for name, spec in table.columns.items():
        if spec.type in ("int", "decimal") and spec.lower is not None:
            low, high = (Fraction(end, 10**spec.digits) for end in spec.bounds)
            ranges[name.lower()] = Range(low, high, spec.digits)
    return ranges


def decimal_text(value: Fraction, scale: int) -> str:
    """A number as a catalog writes it, with so many digits after the point."""
    return f"{Decimal(value.numerator * 10**scale // value.denominator).scaleb(-scale):f}"


def _name(expression: Summed, table: Table, table_measures: dict[str, Measure]) -> str:
    """Alias of a sum, if it is a plain word that the table does not use yet."""
    is_word = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", expression.name)
    word = expression.name.lower() if is_word else "_".join(sorted(expression.columns))
    taken = {name.lower() for name in (*table.columns, *table.derive, *table_measures)}
    return free_name(taken, word)
