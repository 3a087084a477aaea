"""`dpsql init`: look at raw tables and write a first catalog: roles, keys, bounds, and what to confirm.

Every bound and category list that came from data gets ``confirm: true``, and publishing refuses while one is left: a
bound that one person decides would tell on that person. Epsilon and cap are left as ``CHOOSE``, since nobody but the
curator can choose them.

**Privacy**: reads raw rows and shows bounds to the curator, before any promise is made. The catalog that
comes out cannot be published until each marked place has been replaced or confirmed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb

from dpsql.engines import RawSide, open_sources
from dpsql.engines.csv import LONGEST
from dpsql.engines.kinds import INTEGERS
from dpsql.errors import InterfaceError, SourceError
from dpsql.star.source import CSV, DUCKDB, PARQUET, Csv, SourceKind
from dpsql.star.sql import identifier

MOST_CATEGORIES = 60
SPARE_ROWS = 10
_PLAIN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_ -]*[A-Za-z0-9_]|[A-Za-z_]|-?\d+(\.\d+)?|\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?"
)
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True)
class ColumnFacts:
    """What was read about a column.

    Args:
        name: the column.
        type: its DuckDB type.
        minimum: smallest value as text, or None.
        maximum: largest value as text, or None.
        unique: whether no value stands twice and none is NULL.
        nullable: whether a NULL was seen.
        values: all values in order, where they are few; otherwise empty.
    """

    name: str
    type: str
    minimum: str | None = None
    maximum: str | None = None
    unique: bool = False
    nullable: bool = False
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableFacts:
    """What was read about a table: where it is, how many rows, its columns."""

    name: str
    source: str
    rows: int
    columns: tuple[ColumnFacts, ...]


def draft_catalog(
    name: str, kind: str, root: str, tables: Sequence[TableFacts], csv: Csv | None = None
) -> str:
    """The YAML of a first catalog.

    Args:
        name: the catalog's name.
        kind: parquet, csv or duckdb.
        root: the source's folder or file.
        tables: what was read; at least one.
        csv: how CSV files are written, for the curator to check.

    Returns:
        YAML text with ``CHOOSE`` where the curator must choose and ``confirm: true`` beside each guess.

    **Privacy**: the text holds bounds and categories read from data; it is for the curator's eyes until
        every ``confirm`` was checked and removed.
    """
    keys = {table.name: _key(table) for table in tables}
    links = {table.name: _links(table, keys) for table in tables}
    facts = _facts(tables, links)
    unit = next((f"{t.name}.{keys[t.name]}" for t in tables if t.name not in facts and keys[t.name]), "")
    lines = _header(name, kind, root, tables, unit, csv)
    for table in tables:
        lines += _table(table, keys[table.name], links[table.name], table.name in facts, unit)
    return "\n".join([*lines, "", "views:", *_views(tables, facts, keys, links)]) + "\n"


def _header(
    name: str, kind: str, root: str, tables: Sequence[TableFacts], unit: str, csv: Csv | None
) -> list[str]:
    """What stands above the tables: name, source, and the choices that are the curator's."""
    written = "" if csv is None else f"csv: {json.dumps(csv.model_dump(exclude={'columns'}))}, "
    return [
        "# A draft. Write numbers for CHOOSE, check every bound marked `confirm: true` and remove the mark:",
        "# bounds must hold for every possible row and must not follow from the rows at hand.",
        "dpsql: 1",
        f"name: {re.sub('[^A-Za-z0-9_]', '_', name)}",
        f"source: {{kind: {kind}, root: {_text(root)}, {written}tables: {{"
        + ", ".join(f"{_text(t.name)}: {_text(t.source)}" for t in tables)
        + "}}",
        "privacy:",
        f"  lineage: {_text(name)}  # the people; every release about them draws on one cap",
        "  cap: CHOOSE  # most that these people may ever lose, for instance 4.0",
        f"  unit: {_text(unit or 'row')}  # whose privacy: row, or table.key of the people's table",
        "  epsilon: CHOOSE  # what this release spends, for instance 1.0",
        "  delta: 0",
        "",
        "tables:",
    ]


def _key(table: TableFacts) -> str | None:
    """The likeliest key: a unique column named like one."""
    unique = [column.name for column in table.columns if column.unique]
    base = table.name.lower().rstrip("s")
    named = [n for n in unique if n.lower() in ("id", "key", f"{base}_id", f"{base}id", f"{base}_key")]
    ids = [n for n in unique if n.lower().endswith(("id", "key", "code"))]
    return next(iter([*named, *ids]), None)


def _links(table: TableFacts, keys: dict[str, str | None]) -> dict[str, str]:
    """Foreign keys: columns named like another table's key."""
    found = {}
    for column in table.columns:
        for other, key in keys.items():
            same = key is not None and column.name.lower() == key.lower() and key.lower() not in ("id", "key")
            spelled = column.name.lower() in (f"{other.lower()}_id", f"{other.lower().rstrip('s')}_id")
            if (
                other != table.name
                and (same or (spelled and key is not None))
                and column.name != keys[table.name]
            ):
                found[column.name] = other
    return found


def _facts(tables: Sequence[TableFacts], links: dict[str, dict[str, str]]) -> frozenset[str]:
    """Tables that nobody refers to; where all are referred to, the largest."""
    referred = {other for targets in links.values() for other in targets.values()}
    facts = frozenset(table.name for table in tables if table.name not in referred)
    return facts or frozenset({max(tables, key=lambda table: table.rows).name})


def _text(value: str) -> str:
    """A YAML scalar, quoted where YAML or a flow mapping would read it otherwise."""
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    return value if plain else json.dumps(value, ensure_ascii=False)


def _table(table: TableFacts, key: str | None, links: dict[str, str], is_fact: bool, unit: str) -> list[str]:
    is_fact = is_fact or key is None
    lines = [f"  {_text(table.name)}:", f"    role: {'fact' if is_fact else 'dimension'}"]
    if key is not None:
        lines.append(f"    key: {_text(key)}")
    if not is_fact:
        lines.append("    private: true  # false if the rows are public, such as products or days")
    if links:
        pairs = ", ".join(f"{_text(column)}: {_text(other)}" for column, other in links.items())
        lines.append(f"    foreign_keys: {{{pairs}}}")
    if is_fact and unit:
        lines += [f"    max_ids: {SPARE_ROWS}  # rows of one unit that count", "    confirm: true"]
    columns = [_column(column, is_fact) for column in table.columns if column.name not in (key, *links)]
    shown = [line for line in columns if line]
    return [*lines, *(["    columns:", *shown] if shown else [])]


def _column(column: ColumnFacts, in_fact: bool) -> str:
    """One line for a column whose type and bounds make an axis or a measure; otherwise nothing."""
    keys = _domain(column)
    if not keys:
        return ""
    if in_fact and keys[0] in ("type: int", "type: decimal"):
        keys.append("measure: true")
    if column.nullable:
        keys.append("nullable: true")
    if keys[0] != "type: bool":
        keys.append("confirm: true")
    return f"      {_text(column.name)}: {{{', '.join(keys)}}}"


def _domain(column: ColumnFacts) -> list[str]:
    kind = column.type.upper()
    if kind == "BOOLEAN":
        return ["type: bool"]
    if kind == "VARCHAR":
        few = column.values and len(column.values) <= MOST_CATEGORIES
        return ["type: string", f"categories: [{', '.join(map(_text, column.values))}]"] if few else []
    if column.minimum is None or column.maximum is None:
        return []
    low, high = column.minimum, column.maximum
    if kind in INTEGERS:
        return ["type: int", f"lower: {low}", f"upper: {high}"]
    if kind == "DATE":
        return ["type: date", f"lower: {low}", f"upper: {high}"]
    if kind.startswith("TIMESTAMP"):
        return ["type: timestamp", "grain: hour", f"lower: {low[:19]}", f"upper: {high[:19]}"]
    return _decimal(kind, low, high)


def _decimal(kind: str, low: str, high: str) -> list[str]:
    declared = re.fullmatch(r"DECIMAL\(\d+,\s*(\d+)\)", kind)
    if declared is None and kind not in ("DOUBLE", "FLOAT", "REAL"):
        return []
    scale = min(int(declared.group(1)), 9) if declared else 2
    try:
        bounds = f"{float(low):.{scale}f}", f"{float(high):.{scale}f}"
    except (ValueError, OverflowError):
        return []
    finite = all(re.fullmatch(r"-?\d{1,12}(\.\d+)?", bound) for bound in bounds)
    return (
        ["type: decimal", f"scale: {scale}", f"lower: {bounds[0]}", f"upper: {bounds[1]}"] if finite else []
    )


def _views(
    tables: Sequence[TableFacts],
    facts: frozenset[str],
    keys: dict[str, str | None],
    links: dict[str, dict[str, str]],
) -> list[str]:
    """One view per fact table: a column of its own and one of a dimension, counts only."""
    known = {table.name: table for table in tables}
    lines = []
    for name in [table.name for table in tables if table.name in facts]:
        homes = [name, *links[name].values()]
        axes = []
        for home in homes:
            taken = (keys[home], *links[home])
            fits = [c.name for c in known[home].columns if c.name not in taken and _column(c, False)]
            axes += [_text(f"{home}.{fits[0]}")] if fits and _column_is_short(known[home], fits[0]) else []
        if axes:
            lines.append(
                f"  {_text(name)}_view: {{of: {_text(name)}, axes: [{', '.join(axes[:2])}], measures: [count]}}"
            )
    return lines or ["  {}"]


def _column_is_short(table: TableFacts, name: str) -> bool:
    """Whether a column makes an axis without cuts: few categories, or a range of at most 10,000 values."""
    column = next(c for c in table.columns if c.name == name)
    if column.type.upper() not in INTEGERS:
        return True
    return int(column.maximum or 0) - int(column.minimum or 0) <= 10_000


def draft_from_source(source: Path, output: Path, name: str | None) -> int:
    """Write a first catalog.

    Args:
        source: a folder of Parquet or CSV files, or a DuckDB file.
        output: the catalog; must not exist.
        name: its name; the source's own unless given.

    Returns:
        How many places wait for confirmation.

    Raises:
        SourceError: nothing readable there.
        InterfaceError: the output exists.
    """
    if output.exists():
        raise InterfaceError(f"{output} exists", hint="choose another output, or remove it")
    found = _found(source)
    raw = open_sources(found.kind, source, found.tables, csv=found.csv)
    try:
        facts = [_table_facts(raw, table, where) for table, where in found.tables.items()]
    finally:
        raw.close()
    text = draft_catalog(name or _plain(source.stem), found.kind.name, str(source), facts, found.csv)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    return text.count("confirm: true") - text.count("`confirm: true`")


class _Found(NamedTuple):
    """A source that nobody has described: its kind, table -> file (or table) name, and how CSV files are written."""

    kind: SourceKind
    tables: dict[str, str]
    csv: Csv | None = None


def _found(source: Path) -> _Found:
    if source.is_file():
        try:
            with duckdb.connect(str(source), read_only=True) as connection:
                rows = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        except duckdb.Error as error:
            raise SourceError(
                f"{source} is not a DuckDB file", hint="give a DuckDB file or a folder"
            ) from error
        return _Found(DUCKDB, {str(row[0]): str(row[0]) for row in rows})
    if parquet := sorted(source.glob("*.parquet")):
        return _Found(PARQUET, {_plain(file.stem): file.name for file in parquet})
    if lines := sorted(source.glob("*.csv")):
        tables = {_plain(file.stem): file.name for file in lines}
        return _Found(CSV, tables, Csv(delimiter=_delimiter(lines)))
    raise SourceError(
        f"{source} holds no Parquet or CSV file", hint="give a folder of tables or a DuckDB file"
    )


def _delimiter(files: Sequence[Path]) -> str:
    """The delimiter that stands most often in the header lines, which are no rows; a comma where none does."""
    headers = b""
    for file in files:
        with file.open("rb") as stream:
            headers += stream.readline(LONGEST)
    return max(",;\t|", key=lambda mark: headers.count(mark.encode()))


def _table_facts(raw: RawSide, table: str, where: str) -> TableFacts:
    """Rows, keys, bounds and short lists of values of one table."""
    name = f"raw.{identifier(table)}"
    rows = int(raw.connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0])
    columns = tuple(
        _column_facts(raw, name, column, kind, rows) for column, kind in raw.columns[table].items()
    )
    return TableFacts(table, where, rows, columns)


def _column_facts(raw: RawSide, table: str, column: str, kind: str, rows: int) -> ColumnFacts:
    quoted = identifier(column)
    low, high, distinct, present = raw.connection.execute(
        f"SELECT CAST(min({quoted}) AS VARCHAR), CAST(max({quoted}) AS VARCHAR), count(DISTINCT {quoted}), "
        f"count({quoted}) FROM {table}"
    ).fetchall()[0]
    values: tuple[str, ...] = ()
    if distinct <= MOST_CATEGORIES:
        listed = raw.connection.execute(
            f"SELECT DISTINCT CAST({quoted} AS VARCHAR) FROM {table} WHERE {quoted} IS NOT NULL ORDER BY 1"
        ).fetchall()
        values = tuple(str(row[0]) for row in listed)
    unique = rows > 0 and distinct == rows and present == rows
    return ColumnFacts(column, kind, low, high, unique, present < rows, values)


def _plain(text: str) -> str:
    """A name that a catalog accepts."""
    plain = "".join(c if c.isalnum() else "_" for c in text)
    return plain if plain and not plain[0].isdigit() else f"t_{plain}"
