"""The catalog, checked, and its star: what its names mean, resolved once, as frozen values.

`catalog.star` is made when it is first asked for. Whoever counts, plans, appends or collects reads paths, units, axes
and measures here, and resolves no name again.

    star.tables["sales"].hops      every foreign key on the way from a sale, nearest first
    star.tables["sales"].unit      where a sale says whose it is
    star.views["demand"].axes      the view's axes as they are written and as they are meant

It is read from YAML with every scalar as text and no duplicate keys; errors give file, line, path.

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ValidationError, model_validator

from dpsql.catalog.base import PEOPLE, Problem
from dpsql.catalog.checks import check_catalog
from dpsql.catalog.derived import check_binding, spread_quantiles, spread_squares
from dpsql.catalog.graph import (
    KeyPath,
    ResolvedAxis,
    ResolvedMeasure,
    UnitPath,
    is_own,
    is_unique_per_unit,
    max_ids,
    reachable,
    unit_path,
    view_axes,
    view_measures,
)
from dpsql.catalog.model import AxisSpec, CatalogFields, View
from dpsql.catalog.private_columns import has_private_keys, reported_axes
from dpsql.catalog.source import vouched_tables
from dpsql.catalog.tables import ExcessRowsRule
from dpsql.errors import CatalogError

if TYPE_CHECKING:
    import yaml


CLIPPED_SHARE, REPORTED_SHARE = Fraction(1, 20), Fraction(1, 10)
"""Part of a table's charges that measures the rows beyond a declared bound, unless the catalog writes another. Where
all views read reports of devices, their noise is most of an error and a larger part costs little: under `max_ids: 28` a
total of 77,000 of 20,000 people had +- 6,174, and has 1,116, of which 634 are noise."""


class Hop(NamedTuple):
    """One foreign key on the way from a counted table.

    Args:
        path: foreign-key columns from the counted table up to and including this one.
        table: the table that it leads to.
        key: that table's key column.
        drops: whether rows whose key finds no row are left out.
        own: whether the rows reached say whose the counted row is, so that all rows of a key are joined.
        parent: the table that holds the foreign key.
    """

    path: KeyPath
    table: str
    key: str
    drops: bool = False
    own: bool = False
    parent: str = ""


class BoundingRule(NamedTuple):
    """Contribution bound of a unit's rows in a table.

    Args:
        word: what becomes of its other rows.
        max_ids: rows of one unit that count; 0 where publishing chooses.
        clipped_share: part of the table's charges that measures the rows beyond `max_ids`; 0 for none.
    """

    word: ExcessRowsRule
    max_ids: int
    clipped_share: Fraction


@dataclass(frozen=True)
class StarTable:
    """A table whose rows views count.

    Args:
        name: the table.
        hops: every foreign key on the way from it, nearest first.
        unit: where a row says whose it is; None where each row is a unit.
        one_row: whether each row is a unit, or names the unit that it is.
        unique: whether a unit owns at most one row by the keys of the catalog.
        bounding: how many rows of one unit count.
        found: paths at whose end every row that counts finds a row, as far as the catalog says so.
    """

    name: str
    hops: tuple[Hop, ...]
    unit: UnitPath | None
    one_row: bool
    unique: bool
    bounding: BoundingRule
    found: frozenset[KeyPath]

    @property
    def cuts(self) -> bool:
        """True if a declared number of rows counts of a unit that may own more."""
        return self.bounding.max_ids > 0 and not self.unique

    def is_own(self, path: KeyPath) -> bool:
        """True if all rows of a unit share what lies at the end of a path: it lies behind the unit's own key."""
        unit_key = None if self.unit is None else (*self.unit.path, self.unit.column)
        return unit_key is not None and path[: len(unit_key)] == unit_key

    def ways(self, ends: Iterable[KeyPath]) -> tuple[Hop, ...]:
        """Every hop on the ways to the unit and to some axes, parents before children.

        Args:
            ends: foreign-key paths of the axes.
        """
        unit = [self.unit.path] if self.unit else []
        taken = {path[:hop] for path in (*ends, *unit) for hop in range(1, len(path) + 1)}
        hops = [hop for hop in self.hops if hop.path in taken]
        return tuple(sorted(hops, key=lambda hop: (len(hop.path), hop.path)))

    def joined(self, ends: Iterable[KeyPath]) -> tuple[Hop, ...]:
        """Every hop that counting the rows takes: `ways`, and those that drop unmatched rows."""
        return self.ways([*ends, *(hop.path for hop in self.hops if hop.drops)])


class ViewAxis(NamedTuple):
    """An axis of a view: as the catalog writes it, and what that means."""

    written: AxisSpec
    meant: ResolvedAxis


@dataclass(frozen=True)
class StarView:
    """A view with its names resolved.

    Args:
        name, of: the view and the table that it counts.
        spec: what the catalog writes of it.
        axes: its axes, in its order.
        measures: its statistics of rows.
        unit_share: the part of its budget that counts different units; 0 where they are not counted. All shares add
            up to at most 1.
    """

    name: str
    of: str
    spec: View
    axes: tuple[ViewAxis, ...]
    measures: tuple[ResolvedMeasure, ...]
    unit_share: Fraction = Fraction(0)

    @property
    def meant(self) -> tuple[ResolvedAxis, ...]:
        return tuple(axis.meant for axis in self.axes)


@dataclass(frozen=True)
class Star:
    """All counted tables and all views of a catalog, by name."""

    tables: Mapping[str, StarTable]
    views: Mapping[str, StarView]

    def views_of(self, of: str) -> list[StarView]:
        """The views that count a table."""
        return [view for view in self.views.values() if view.of == of]


def _table(catalog: CatalogFields, of: str) -> StarTable:
    tables, unit, owner = reachable(catalog, of), catalog.privacy.unit, unit_path(catalog, of)
    # a row that finds none on the way to the unit's key is nobody's, and people made of rows have one for each key
    made = owner is not None and catalog.tables[str(unit.table)].people_of == owner.table
    sure = () if owner is None else (*owner.path, *([owner.column] if made else []))
    hops, found = [], set[KeyPath]([()])
    for path, name in tables.items():
        if path:
            parent, key = tables[path[:-1]], str(catalog.tables[name].key)
            drops = catalog.tables[parent].foreign_keys[path[-1]].drops
            hops.append(Hop(path, name, key, drops, is_own(catalog, of, path), parent))
            # a device knows no keys but those of its axes, and reports rows whose other keys find none
            if catalog.collection is None and path[:-1] in found and (drops or path == sure[: len(path)]):
                found.add(path)
    limit = max_ids(catalog, of)
    rows = 0 if isinstance(limit, str) else limit
    spec, one_row = catalog.tables[of], unit.table in (None, of)
    reported = all(reported_axes(catalog, name) for name, view in catalog.views.items() if view.of == of)
    usual = REPORTED_SHARE if reported else CLIPPED_SHARE
    written = usual if spec.clipped_share is None else spec.clipped_share
    unique = one_row or is_unique_per_unit(catalog, of)
    measured = rows > 0 and not unique and catalog.stream is None
    rule = BoundingRule(spec.bounding, rows, written if measured else Fraction(0))
    return StarTable(of, tuple(hops), owner, one_row, unique, rule, frozenset(found))


class Catalog(CatalogFields):
    """A whole catalog. Build it with `load_catalog` or `catalog_from_json`."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        spread_squares(self)
        spread_quantiles(self)
        if has_private_keys(self) and "key_delta" not in self.privacy.model_fields_set:
            tenth = self.privacy.model_copy(update={"key_delta": self.privacy.delta / 10})
            object.__setattr__(self, "privacy", tenth)
        check_catalog(self)
        if self.source is not None:
            object.__setattr__(self, "vouched", vouched_tables(self.source, self.tables))
        return self

    @cached_property
    def star(self) -> Star:
        """Paths, units, axes and measures: every name resolved, once."""
        views = {}
        for name, view in self.views.items():
            axes = tuple(map(ViewAxis, view.axes, view_axes(self, view)))
            people = view.measures.get(PEOPLE, Fraction(0))
            views[name] = StarView(name, view.of, view, axes, view_measures(self, view), people)
        return Star({of: _table(self, of) for of in dict.fromkeys(view.of for view in views.values())}, views)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, whose star is its own."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("star", None)
        return copy


def spec_hash(catalog: Catalog) -> str:
    """Identity of a publish: the public part and which tables are read, not where they lie.

    Args:
        catalog: any catalog.

    Returns:
        A SHA-256 in hex; the order of keys and the way numbers are written do not change it.

    **Privacy**: a function of the catalog alone, never of data.
    """
    tables = {} if catalog.source is None else dict(catalog.source.tables)
    text = json.dumps([json.loads(catalog.to_json()), tables], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


LARGEST_FILE = 4 * 2**20
DEEPEST = 20
Lines = dict[tuple[str, ...], int]
M = TypeVar("M", bound=BaseModel)


def load_catalog(path: str | Path, ledger: str | PathLike[str] | None = None) -> Catalog:
    """Read and check a catalog.

    Args:
        path: the YAML file.
        ledger: the ledger's file, where it is not the catalog's; relative to the working directory.

    Returns:
        The catalog, which remembers its file.

    Raises:
        CatalogError: it cannot be read, or something in it is wrong; the message names file, line, key path
            and what to write.

    **Privacy**: reads the catalog alone, never a table.
    """
    file = Path(path)
    catalog = parse_catalog(catalog_text(file), str(file), file)
    return catalog if ledger is None else catalog.model_copy(update={"ledger": str(Path(ledger).absolute())})


def catalog_text(file: Path) -> str:
    """The text of a catalog's file.

    Raises:
        CatalogError: it cannot be read, is no text, or too long for a catalog.
    """
    try:
        raw = file_bytes(file, LARGEST_FILE)
        text = raw.decode("utf-8")
    except OSError as error:
        raise CatalogError(
            f"{file}: cannot be read ({error.strerror})", hint="give the path of a catalog"
        ) from None
    except UnicodeDecodeError:
        raise CatalogError(f"{file}: is not UTF-8 text", hint="give the path of a YAML catalog") from None
    if len(raw) > LARGEST_FILE:
        raise CatalogError(
            f"{file}: is larger than {LARGEST_FILE} bytes", hint="split the categories into a table"
        )
    return text


def file_bytes(path: Path, most: int) -> bytes:
    """Content of a regular file; one byte more than `most` of a larger one.

    A pipe or a device would keep its reader waiting, or never end.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    # a pipe that nobody writes to opens at once
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(most + 1)


def parse_catalog(text: str, name: str = "catalog", file: Path | None = None) -> Catalog:
    """Read a catalog from YAML text.

    Args:
        text: YAML.
        name: what errors call it.
        file: where it lies or will lie; relative places start there.

    Returns:
        The catalog.

    Raises:
        CatalogError: as in `load_catalog`.
    """
    catalog = read_model(text, name, Catalog, "begin with `dpsql: 1`", _check_expressions)
    catalog._file = None if file is None else file.resolve()
    return catalog


def _check_expressions(catalog: Catalog) -> None:
    on_server = catalog.source is not None and catalog.source.kind.is_server
    check_binding(catalog.tables, on_server=on_server)


def read_model(
    text: str, name: str, model: type[M], begin: str, check: Callable[[M], None] | None = None
) -> M:
    """Read a model from YAML text.

    Args:
        text: YAML.
        name: what errors call it.
        model: what it is read as.
        begin: a hint for what is no mapping.
        check: what else may raise a `Problem`.

    Returns:
        The value.

    Raises:
        CatalogError: as in `load_catalog`.
    """
    import yaml  # a release needs none

    lines: Lines = {}
    try:
        node = _composed(text)
    except RecursionError:
        raise CatalogError(f"{name}: is nested too deep", hint=begin) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}" if mark else name
        problem = re.sub(r"\s+", " ", str(getattr(error, "problem", "") or "bad character"))
        raise CatalogError(f"{where}: invalid YAML ({problem})", hint="fix this line") from None
    if not isinstance(node, yaml.MappingNode):
        raise CatalogError(f"{name}: contains no keys", hint=begin)
    try:
        value = model.model_validate(_plain(node, (), lines, len(text)))
        if check is not None:
            check(value)
        return value
    except Problem as problem:
        raise CatalogError(_place(name, problem.path, lines) + str(problem)) from None
    except ValidationError as error:
        raise CatalogError(_describe(error, name, lines)) from None


@lru_cache(maxsize=4)
def _composed(text: str) -> yaml.Node | None:
    """The nodes of a YAML text; a publish reads its catalog several times, and nobody changes a node."""
    import yaml

    fast = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # libyaml takes a twentieth of the time
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=fast)
    except (yaml.YAMLError, UnicodeEncodeError):
        node = yaml.compose(text, Loader=yaml.BaseLoader)  # says more about the mistake
    return node


def made_view(name: str, entry: Mapping[str, Any]) -> View:
    """A view that a command makes, held to what a catalog may say.

    Args:
        name: what it is called below `views`.
        entry: its keys.

    Raises:
        CatalogError: the catalog's own rules refuse it.
    """
    try:
        return View.model_validate(dict(entry))
    except ValidationError as error:
        raise CatalogError(f"views.{name}.{_describe(error, name, {})}") from None


def catalog_from_json(text: str) -> Catalog:
    """Read back what `Catalog.to_json` wrote, for instance from a release.

    Args:
        text: canonical JSON.

    Returns:
        The catalog; it has no file, no source and the default ledger.

    Raises:
        CatalogError: it is not the JSON of a catalog.
    """
    try:
        return Catalog.model_validate(json.loads(text))
    except ValidationError as error:
        raise CatalogError(_describe(error, "catalog", {})) from None
    except ValueError:
        raise CatalogError(
            "the catalog inside the release is not JSON", hint="the release is damaged"
        ) from None


def _plain(
    node: yaml.ScalarNode | yaml.SequenceNode | yaml.MappingNode,
    path: tuple[str, ...],
    lines: Lines,
    limit: int,
) -> Any:
    """A YAML node as dicts, lists and text; lines are noted by key path.

    Names for parts (`&a`, `*a`) may stand for parts that hold names: a few lines would become billions of entries. A
    text without names has no more entries than characters.
    """
    if len(lines) > limit:
        raise Problem(path[:3], "aliases (`*`) expand this catalog beyond its own length")
    lines[path] = node.start_mark.line + 1
    if len(path) > DEEPEST:
        raise Problem(path[:3], "nested too deeply; a catalog needs no more than a few levels")
    if node.id == "scalar":
        return node.value
    if node.id == "sequence":
        return [_plain(child, (*path, str(i)), lines, limit) for i, child in enumerate(node.value)]
    mapping: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = key_node.value if key_node.id == "scalar" else ""
        if not key:
            raise Problem(path, "a key must be a plain word")
        if key in mapping:
            lines[(*path, key)] = key_node.start_mark.line + 1
            raise Problem((*path, key), f"`{key}` is repeated; keep one")
        mapping[key] = _plain(value_node, (*path, key), lines, limit)
        lines[(*path, key)] = key_node.start_mark.line + 1
    return mapping


def _place(name: str, path: tuple[str, ...], lines: Lines) -> str:
    nearest_path = path
    while nearest_path and nearest_path not in lines:
        nearest_path = nearest_path[:-1]
    line = f":{lines[nearest_path]}" if nearest_path in lines else ""
    return f"{name}{line}: " + (f"{'.'.join(path)}: " if path else "")


PLAIN = {
    "tuple_type": "write a list, such as [a, b]",
    "dict_type": "write a mapping, such as {name: value}",
    "bool_parsing": "write true or false",
    "string_type": "write one text",
    "int_parsing": "write a whole number",
}
"""What to write, in words of YAML, by pydantic's name of the error."""


def _describe(error: ValidationError, name: str, lines: Lines) -> str:
    """The first error of pydantic as one line: place, what is wrong, what to write."""
    first = error.errors(include_url=False)[0]
    path = tuple(str(key) for key in first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, Problem):
        path = cause.path
    message = str(cause) if isinstance(cause, ValueError) else first["msg"]
    if first["type"] == "missing":
        path, message = path[:-1], f"`{path[-1]}` is missing; write it (it has no default)"
    elif not isinstance(cause, ValueError):
        written = first["input"]
        shown = f"`{written}`: " if isinstance(written, str) and len(written) < 60 else ""
        message = shown + PLAIN.get(first["type"], f"{message[:1].lower()}{message[1:]}")
    while not isinstance(cause, Problem) and lines and path and path not in lines:
        path = path[:-1]  # a part that pydantic adds for the branch of a union
    remaining = error.error_count() - 1
    more = f" (and {remaining} more)" if remaining else ""
    return _place(name, path, lines) + re.sub(r"\s+", " ", message) + more
