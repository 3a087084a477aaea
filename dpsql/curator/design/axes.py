"""Axes and facts about people that statements need and the catalog lacks.

Axes have the cuts that questions need, of a width that people would choose, or are grains of public tables. Facts are
read from each `GROUP BY customer_id`:

    HAVING COUNT(*) >= 3     visits: {of: sales, is: count(*), type: int, lower: 0, upper: 200}

Bounds follow from what the catalog says of the columns, never from rows. What lies beyond them counts as the bound.

**Privacy**: a function of the catalog, of statements and of public tables.

Designed views are put into the catalog's own text as a person would write them; all else in it stays as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import yaml

from dpsql.catalog import Catalog
from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.catalog.columns import ORDERED, Column, Cuts, bin_starts
from dpsql.catalog.graph import paths_to
from dpsql.catalog.summaries import people_table, summary_input, unused_summaries, value_spec
from dpsql.catalog.tables import Summary
from dpsql.central.bounding import EXCESS_SHARE
from dpsql.curator.design.questions import NewMeasures, ScaffoldAxis, column_ranges, decimal_text
from dpsql.errors import CatalogError, Error
from dpsql.executor.engine import ReleaseEngine
from dpsql.planner.schema import Schema, catalog_schema
from dpsql.row_expressions import free_name
from dpsql.row_expressions.aggregate import CONDITIONS, Aggregate, parse_aggregate, spelling
from dpsql.row_expressions.expression import column_names
from dpsql.sql.moments import range_of
from dpsql.sql.parse import parse
from dpsql.sql.per_person import NAMES, MissingSummary
from dpsql.sql.rewrite import split_statement

SHORT = 128
"""Leaves up to which an axis needs no cuts."""

WIDTHS = ("year", "quarter", "month", "week", "day", "hour")
Codes = npt.NDArray[np.int64]
Grain = Mapping[tuple[str, str], Codes]
"""(table, column) -> the rank of each key's value among the column's values."""


class DesignedAxis(NamedTuple):
    """An axis of a designed view.

    Args:
        entry: as a view writes it.
        leaves: about how many it has.
    """

    entry: dict[str, Any]
    leaves: int


class AxisWriter:
    """Writes axes of one catalog.

    Args:
        catalog: the catalog.
        grains: public place -> its columns.
    """

    def __init__(self, catalog: Catalog, grains: Mapping[ScaffoldAxis, Grain]) -> None:
        self.catalog, self.grains = catalog, grains

    def axis(
        self, place: ScaffoldAxis, columns: Iterable[tuple[str, str]], ends: Iterable[int],
        *, coarsest: bool = False, fine: bool = False,
    ) -> DesignedAxis:  # fmt: skip
        """The axis at a place that serves some questions.

        Args:
            place: where.
            columns: the columns that they look at.
            ends: where they begin or end, in units of a private column.
            coarsest: whether an ordered column is cut there and nowhere else.
            fine: whether it is cut as finely as `SHORT` allows, where the catalog does not say how.
        """
        if place.column is None:
            return self._public(place, frozenset(columns))
        spec = self.catalog.tables[place.table].columns[place.column]
        name = f"{self._name(place)}.{place.column}"
        if not spec.ordered:
            return DesignedAxis({"axis": name}, spec.leaves if spec.from_ is None else SHORT)
        ends = frozenset((*ends, *(_fine_starts(spec) if fine else ())))
        cuts = coarsest_cuts(spec, ends) if coarsest else cuts_for(spec, ends)
        starts = len(bin_starts(spec, cuts or spec.cuts))
        if cuts is None:
            return DesignedAxis({"axis": name}, starts)
        written = list(cuts.at) if cuts.at else {"width": cuts.width}
        return DesignedAxis({"axis": name, "cuts": written}, starts)

    def _name(self, place: ScaffoldAxis) -> str:
        """The shortest name of a place."""
        alone = len(paths_to(self.catalog, place.of, place.table)) == 1
        return place.table if alone else ".".join(place.path)

    def _public(self, place: ScaffoldAxis, columns: frozenset[tuple[str, str]]) -> DesignedAxis:
        grain = self.grains[place]
        wanted = columns & grain.keys() or {min(grain, key=lambda c: (int(grain[c].max()), c))}
        coarse = sorted(wanted, key=lambda c: (int(grain[c].max()), c))
        # without columns that a finer one tells in its own order: a month tells its year
        members = [
            c for i, c in enumerate(coarse) if not any(_tells(grain[f], grain[c]) for f in coarse[i + 1 :])
        ]
        leaves = len(np.unique(np.stack([grain[c] for c in members]), axis=1).T)
        by = [self._member(place, *column) for column in members]
        return DesignedAxis({"axis": self._name(place), "by": by}, leaves)

    def _member(self, place: ScaffoldAxis, table: str, column: str) -> str:
        """A column of a public table as `by` names it: with its table where that is an arm of the snowflake.

        A foreign key that leads there is the table's own key.
        """
        if table != place.table and column in place.path[-1:]:
            return self.catalog.tables[place.table].key or column
        plain = table == place.table or (
            column in self.catalog.tables[table].columns
            and not any(column in t.columns for n, t in self.catalog.tables.items() if n not in (table,))
        )
        return column if plain else f"{table}.{column}"


def _tells(finer: Codes, coarser: Codes) -> bool:
    """True if the coarser one is a function of the finer one that runs through each of its values once."""
    order = np.argsort(finer, kind="stable")
    pairs = np.unique(np.stack([finer[order], coarser[order]]), axis=1)
    runs = 1 + int(np.count_nonzero(np.diff(pairs[1])))
    return pairs.shape[1] == int(finer.max()) + 1 and runs == int(coarser.max()) + 1


def grains_of(answerer: ReleaseEngine, axes: Mapping[ScaffoldAxis, int]) -> dict[ScaffoldAxis, Grain]:
    """The columns of every public place.

    Args:
        answerer: over the scaffold's dry release.
        axes: place -> its axis there.
    """
    grains: dict[ScaffoldAxis, Grain] = {}
    for place, axis in axes.items():
        if place.column is None:
            atoms = answerer.release.atoms(axis)
            columns = answerer.release.axes[axis].columns
            grains[place] = {(c.table, c.column): _codes(atoms[c.name]) for c in columns if c.name in atoms}
    return grains


def _codes(values: Any) -> Codes:
    """The rank of each value; NULLs are one value before all others."""
    texts = np.ma.masked_array(values).tolist()
    ranks = {v: i for i, v in enumerate(sorted({v for v in texts if v is not None}))}
    return np.array([0 if v is None else ranks[v] + 1 for v in texts], np.int64)


def cuts_for(column: Column, ends: frozenset[int]) -> Cuts | None:
    """Cuts under which no question cuts a leaf; None where the column's own will do.

    Args:
        column: an ordered column.
        ends: where questions begin or end, in its units.

    >>> day = Column(type="date", lower="2024-01-01", upper="2025-12-31")
    >>> cuts_for(day, frozenset({day.units("2024-04-01")})).width
    'quarter'
    >>> cuts_for(Column(type="int", lower="0", upper="99"), frozenset({18}))
    """
    low, high = column.bounds
    inside = frozenset(end for end in ends if low < end <= high)
    already_cut = column.cuts is not None or high - low < SHORT
    if already_cut and inside <= frozenset(own := bin_starts(column, column.cuts)) and len(own) <= SHORT:
        return None
    for width in widths(column):
        cuts = Cuts.model_validate({"width": width})
        starts = bin_starts(column, cuts)
        if inside <= frozenset(starts) and not (inside and len(starts) > max(SHORT, 4 * len(inside))):
            return cuts
    if not inside:
        return None if already_cut else Cuts.model_validate({"width": widths(column)[0]})
    return _cut_at(column, inside)


def coarsest_cuts(column: Column, ends: frozenset[int]) -> Cuts | None:
    """Cuts at the ends of questions alone, for numbers that leaves do not add up to; `cuts_for` where there are none.

    Args:
        column: an ordered column.
        ends: where questions begin or end, in its units.

    >>> coarsest_cuts(Column(type="int", lower="0", upper="99"), frozenset({18})).at
    ('18',)
    """
    low, high = column.bounds
    inside = frozenset(end for end in ends if low < end <= high)
    if not inside or (column.leaves <= SHORT and inside == frozenset(bin_starts(column, column.cuts)[1:])):
        return cuts_for(column, ends)
    return _cut_at(column, inside)


def _cut_at(column: Column, ends: frozenset[int]) -> Cuts:
    return Cuts.model_validate({"at": tuple(column.text(end) for end in sorted(ends))})


def _fine_starts(column: Column) -> Iterable[int]:
    """The first values of bins of the least width that gives at most `SHORT`; none where leaves are few, or cut."""
    if column.cuts is not None or column.leaves <= SHORT:
        return ()
    starts = (bin_starts(column, Cuts.model_validate({"width": width})) for width in widths(column))
    return max((bins for bins in starts if len(bins) <= SHORT), key=len, default=())


def widths(column: Column) -> list[str]:
    """Widths that people would choose, the widest first: of the calendar, or 1, 2, 5 times a power of ten."""
    low, high = column.bounds
    if column.type in ("date", "timestamp"):
        finest = column.grain if column.type == "timestamp" else "day"
        return [w for w in WIDTHS if w in ("year", "quarter", "month") or
                GRAIN_MICROSECONDS.get(w, GRAIN_MICROSECONDS["day"]) >= GRAIN_MICROSECONDS[finest]]  # fmt: skip
    widths = []
    for digits in range(len(str(high - low)), -1, -1):
        for step in (5, 2, 1):
            width = step * 10**digits
            if 10 <= (high - low) / width <= 4 * SHORT:
                widths.append(f"{Decimal(width).scaleb(-column.digits):f}")
    return widths


MOST_ROWS = 200
"""The upper bound of a number of rows: who has more counts as one who has so many."""
TYPICAL_ROWS = 20
"""Rows of a person whose greatest values make the upper bound of a sum, unless `max_ids` says how many count."""
MOST_CLASSES = 1 << 15
"""Classes of a sum: questions are read against them, and a view has as few as its questions need."""
MOST_PROPOSED = 32

Entry = Mapping[str, Any]


def new_summaries(catalog: Catalog, statements: Sequence[str]) -> dict[str, Entry]:
    """Summaries that would let statements be answered: name -> what stands in the catalog.

    Args:
        catalog: the catalog.
        statements: SQL.
    """
    people, entries = people_table(catalog), dict[str, Entry]()
    if people is None or people.key is None or catalog.stream is not None:
        return entries
    schema = catalog_schema(catalog)
    for text in statements:
        while len(entries) < MOST_PROPOSED and (wanted := _missing(schema, text)) is not None:
            of, is_ = wanted
            entry = _entry(catalog, of, is_)
            people_columns = schema.tables[str(catalog.privacy.unit.table).lower()].columns
            taken = {name.lower() for name in (*people_columns, *entries)}
            name = _name(of, is_, taken)
            extended = _with_summary(catalog, schema, of, is_, name)
            if entry is None or extended is None:
                break
            entries[name], schema = entry, extended
    return entries


def with_summaries(catalog: Catalog, entries: Mapping[str, Entry]) -> Catalog:
    """The catalog with them; how many people lie beyond the bounds of those that are summed is measured."""
    people = people_table(catalog)
    if people is None or not entries:
        return catalog
    more = {name: Summary.model_validate(entry) for name, entry in entries.items()}
    share = (
        EXCESS_SHARE if people.excess_share is None and any(each.measure for each in more.values()) else None
    )
    return _with_people(catalog, {**people.summaries, **more}, share)


def without_unused(catalog: Catalog) -> Catalog:
    """The catalog without summaries that nothing reads."""
    while unused := unused_summaries(catalog):
        people = people_table(catalog)
        assert people is not None  # it has summaries
        catalog = _with_people(catalog, {n: s for n, s in people.summaries.items() if n not in unused})
    return catalog


def _with_people(
    catalog: Catalog, summaries: Mapping[str, Summary], excess_share: Fraction | None = None
) -> Catalog:
    name, update = str(catalog.privacy.unit.table), {"summaries": summaries}
    people = catalog.tables[name].model_copy(
        update=update if excess_share is None else {**update, "excess_share": excess_share}
    )
    return catalog.model_copy(update={"tables": {**catalog.tables, name: people}})


def _missing(schema: Schema, text: str) -> tuple[str, str] | None:
    """The fact and the aggregate of the first summary that a statement lacks."""
    try:
        split_statement(parse(text, ""), schema, text)
    except MissingSummary as error:
        return error.wanted
    except Error:
        pass  # whoever reads the statement says what is wrong
    return None


def _with_summary(catalog: Catalog, schema: Schema, of: str, is_: str, name: str) -> Schema | None:
    """The schema with a summary; None where the catalog cannot say it, or the schema has it."""
    fact = schema.person_facts[of.lower()]
    try:
        spelt = spelling(parse_aggregate(is_), lambda column: summary_input(catalog, of, column).spelling)
    except CatalogError:
        return None
    if spelt in fact.summaries:
        return None
    facts = {**schema.person_facts, of.lower(): fact._replace(summaries={**fact.summaries, spelt: name})}
    unit = str(catalog.privacy.unit.table).lower()
    people = schema.tables[unit]
    people = replace(people, columns={**people.columns, name.lower(): name})
    return replace(schema, person_facts=facts, tables={**schema.tables, unit: people})


def _entry(catalog: Catalog, of: str, is_: str) -> Entry | None:
    """Catalog entry of a summary; None where no declared column gives its bounds."""
    try:
        call = parse_aggregate(is_)
        domain = _domain(catalog, of, call)
    except CatalogError:
        return None
    return None if domain is None else {"of": of, "is": is_, **domain}


def _domain(catalog: Catalog, of: str, call: Aggregate) -> Entry | None:
    if call.function in CONDITIONS:
        return {"type": "bool"}
    if call.function == "count":
        spec = value_spec(catalog, of, call.arguments[0]) if call.distinct else None
        few = None if spec is None or spec.ordered or not spec.listed else len(spec.listed)
        return {"type": "int", "lower": "0", "upper": str(few or MOST_ROWS), "measure": True}
    if call.function == "sum":
        return _sum(catalog, of, call)
    spec = value_spec(catalog, of, call.arguments[0])
    if call.function not in ("min", "max") or spec is None or spec.type not in ORDERED or spec.lower is None:
        return None
    return {**_kind(spec), "lower": spec.lower, "upper": spec.upper, "nullable": True}


def _sum(catalog: Catalog, of: str, call: Aggregate) -> Entry | None:
    value = call.arguments[0]
    ranges = column_ranges(catalog.tables[of])
    plain = all(not column.table for column in column_names(value))
    bounds = range_of(value.sql("duckdb"), ranges) if plain else None
    if bounds is None:
        return None
    spec = value_spec(catalog, of, value)
    kind = _kind(spec) if spec is not None else {"type": "decimal", "scale": str(bounds.scale)}
    limit = catalog.tables[of].max_ids
    rows = limit if isinstance(limit, int) else TYPICAL_ROWS
    ends = (min(Fraction(0), bounds.low * rows), max(Fraction(0), bounds.high * rows))
    lower, upper = (decimal_text(end, bounds.scale) for end in ends)
    units, digits = (ends[1] - ends[0]) * 10**bounds.scale, 0
    while units // 10**digits >= MOST_CLASSES:
        digits += 1
    width = decimal_text(Fraction(10**digits, 10**bounds.scale), bounds.scale)
    cuts = {"cuts": {"width": width}} if digits else {}
    return {**kind, "lower": lower, "upper": upper, "measure": True, **cuts}


def _kind(spec: Column) -> dict[str, str]:
    """Its type, and what belongs to it."""
    kind: dict[str, str] = {"type": spec.type}
    if spec.type == "decimal":
        kind["scale"] = str(spec.digits)
    return kind | ({"grain": spec.grain} if spec.type == "timestamp" else {})


def _name(of: str, is_: str, taken: set[str]) -> str:
    """Name of a summary by aggregate and column: visits, total_amount, least_day."""
    call = parse_aggregate(is_)
    columns = [column.name.lower() for part in call.arguments for column in column_names(part)]
    word = "_".join([NAMES.get(call.function, "value"), *columns])
    if call.function == "count" and (columns or call.condition is not None):
        word = "_".join(["kinds_of" if call.distinct else "rows_with", *(columns or [of.lower()])])
    return free_name(taken, word)


WIDE = 110

_PLAIN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_ .-]*[A-Za-z0-9_]|[A-Za-z_]|-?\d+(\.\d+)?|\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?"
)

_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


def view_lines(views: Mapping[str, Entry]) -> list[str]:
    """The lines below `views:`; short views on one line.

    Args:
        views: name -> what the view says, in the order of its keys.
    """
    lines = []
    for name, view in views.items():
        short = f"  {quoted(name)}: {flow(view)}"
        if len(short) <= WIDE:
            lines.append(short)
            continue
        lines.append(f"  {quoted(name)}:")
        for key, value in view.items():
            line = f"    {key}: {flow(value)}"
            if len(line) <= WIDE or not isinstance(value, list):
                lines.append(line)
                continue
            lines += [f"    {key}:", *(f"      - {flow(element)}" for element in value)]
    return lines


def flow(value: Any) -> str:
    """A value in YAML's flow style.

    >>> flow({"axis": "day", "cuts": {"width": "month"}}), flow(["count", "a b: c"])
    ('{axis: day, cuts: {width: month}}', '[count, "a b: c"]')
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(str(key))}: {flow(element)}" for key, element in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return "true" if value is True else quoted(str(value))


def with_views(
    text: str,
    views: Mapping[str, Entry],
    measures: NewMeasures,
    people: str,
    summaries: Mapping[str, Entry],
    unused: Sequence[str],
) -> str:
    """The text of a catalog with other views, more measures and other summaries.

    Args:
        text: a valid catalog.
        views: its new views; they take the place of all others.
        measures: for each table measures that it gains.
        people: the people's table.
        summaries: name -> what a new summary of the people says.
        unused: names of summaries that no view reads any more.
    """
    changes: list[tuple[int, int, str]] = []
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a catalog
    block = "\n".join(["views:", *view_lines(views)]) + "\n"
    at = _section(root, "views")
    changes.append((len(text), len(text), f"\n{block}") if at is None else (*_extent(text, *at), block))
    tables = _section(root, "tables")
    for name, gained in measures.items():
        table = None if tables is None else _section(tables[1], name)
        if table is not None:
            keys = ("expr", "scale", "lower", "upper")
            described = {n: {key: getattr(m, key) for key in keys} for n, m in gained.items()}
            changes.append(_more(table[1], "measures", described))
    table = None if tables is None else _section(tables[1], people)
    if table is not None:
        changes += _other_summaries(text, table[1], summaries, unused)
        summed = any(f"{people}.{name}" in view["measures"] for view in views.values() for name in summaries)
        if summed and _section(table[1], "excess_share") is None:
            changes.append(_first(table[1], f"excess_share: {float(EXCESS_SHARE)}"))
    for start, stop, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


Pair = tuple[yaml.Node, yaml.MappingNode]


def _section(node: yaml.Node, key: str) -> Pair | None:
    """The key and value of a mapping's entry."""
    pairs: Sequence[tuple[Any, Any]] = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((k, v) for k, v in pairs if k.value == key), None)


def _extent(text: str, key: yaml.Node, value: yaml.CollectionNode) -> tuple[int, int]:
    """Span of an entry of the outermost mapping, its last newline included."""
    end = value.end_mark.index
    if value.flow_style:
        newline = text.find("\n", end)
        end = len(text) if newline < 0 else newline + 1
    return key.start_mark.index, end


def _more(
    table: yaml.MappingNode, section: str, entries: Mapping[str, Entry], fresh: bool = False
) -> tuple[int, int, str]:
    """Text inserted into a table: into its section, or as the first entry of a fresh section."""
    section_entry = None if fresh else _section(table, section)
    node = table if section_entry is None else section_entry[1]
    inside = {section: entries} if section_entry is None else entries
    if node.flow_style:
        return _first(node, flow(inside)[1:-1])
    lines = [f"{quoted(name)}: {flow(entry)}" for name, entry in entries.items()]
    if section_entry is None:
        lines = [f"{section}:", *(f"  {line}" for line in lines)]
    return _first(node, *lines)


def _first(node: yaml.MappingNode, *lines: str) -> tuple[int, int, str]:
    """Text inserted as the first lines of a mapping; of one in flow style, the first entries."""
    start = node.start_mark.index
    if node.flow_style:
        return start + 1, start + 1, lines[0] + (", " if node.value else "")
    return start, start, ("\n" + " " * node.start_mark.column).join([*lines, ""])


def _other_summaries(
    text: str, table: yaml.MappingNode, gained: Mapping[str, Entry], unused: Sequence[str]
) -> Iterator[tuple[int, int, str]]:
    """Edits of the summaries of a table's text: insertions and removals."""
    section = _section(table, "summaries")
    names = set() if section is None else {key.value for key, _ in section[1].value}
    emptied = bool(names) and names <= set(unused)
    if gained:
        yield _more(table, "summaries", gained, fresh=emptied)
    if emptied:
        yield _extent_inside(text, table, "summaries")
    elif section is not None:
        for name in unused:
            yield _extent_inside(text, section[1], name)


def _extent_inside(text: str, node: yaml.MappingNode, name: str) -> tuple[int, int, str]:
    """Span of an entry of a mapping: up to the next one, or with the line or comma before it if it is the last."""
    pairs: Sequence[tuple[yaml.Node, yaml.Node]] = node.value
    at = next(i for i, (key, _) in enumerate(pairs) if key.value == name)
    start, stop = pairs[at][0].start_mark.index, pairs[at][1].end_mark.index
    if at + 1 < len(pairs):
        return start, pairs[at + 1][0].start_mark.index, ""
    if node.flow_style:
        return (pairs[at - 1][1].end_mark.index if at else start), stop, ""
    start, last_line = text.rfind("\n", 0, start) + 1, text.rfind("\n", 0, stop) + 1
    if not text[last_line:stop].strip():  # a block ends where the next token begins
        return start, last_line, ""
    newline = text.find("\n", stop)
    return start, len(text) if newline < 0 else newline + 1, ""


def quoted(value: str) -> str:
    """A YAML scalar that is read back to the byte, quoted where YAML or a flow mapping would read it otherwise.

    >>> print(quoted("Private"), quoted(" Private"), quoted("a\\u2028b\\xa0"))
    Private " Private" "a\\u2028b\\u00a0"
    """
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return "".join(c if c.isprintable() else _escaped(c) for c in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    """Characters that YAML folds or refuses, or that nobody sees: line ends and blanks beyond ASCII, controls,
    byte order marks."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
