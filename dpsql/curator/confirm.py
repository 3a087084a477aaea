"""`dpsql confirm`: places of a draft that were read from private rows, table by table, and their confirmation.

A mark is `confirm: true` on the promise, a table, a column or a measure. Whoever confirms a table has looked at its
bounds and categories and says that they hold for every possible row; a bound that follows the rows at hand tells on
whoever holds the outermost value, so each one comes with a rounder alternative. What was confirmed, by whom and when,
is appended to a record next to the catalog.

**Privacy**: shows what the draft shows. Nothing is opened but the catalog.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from dpsql.catalog import Catalog, parse_catalog
from dpsql.catalog.catalog import catalog_text
from dpsql.catalog.columns import Column, Cuts, bin_starts
from dpsql.catalog.tables import Measure
from dpsql.curator.design.axes import flow, quoted, widths
from dpsql.curator.draft.domains import natural_bounds, outward, round_width
from dpsql.errors import InterfaceError

PROMISE = "privacy"
"""What the marks of the promise are grouped under; no table may be called so in this list alone."""

STEPS = 5
"""A rounder bound is a multiple of about a fifth of the range."""


class Mark(NamedTuple):
    """A place that was read from private rows.

    Args:
        path: the keys that lead to it.
        shown: what it says, for people.
        rounder: key -> value to write instead; empty where nothing is rounder.
    """

    path: tuple[str, ...]
    shown: str
    rounder: Mapping[str, str]

    @property
    def group(self) -> str:
        """The table that it belongs to, or the promise."""
        return PROMISE if self.path[0] == PROMISE else self.path[1]

    @property
    def name(self) -> str:
        """The column or measure; the table or the promise itself."""
        if len(self.path) > 2:
            return self.path[-1]
        return PROMISE if self.path == (PROMISE,) else "(its key and role)"


ConfirmedTable = tuple[str, bool, tuple[Mark, ...]]
"""One line of the record: a table or the promise, whether rounder bounds were written where there are some, and what
was confirmed."""


def open_marks(catalog: Catalog) -> tuple[Mark, ...]:
    """Every mark of a catalog, in its order.

    Args:
        catalog: a draft.
    """
    return tuple(_marks(catalog))


def groups_of(marks: Iterable[Mark]) -> list[str]:
    """The tables that wait for confirmation, each once, and the promise."""
    return list(dict.fromkeys(mark.group for mark in marks))


def _marks(catalog: Catalog) -> Iterator[Mark]:
    promise = catalog.privacy
    if promise.confirm:
        spends = "" if promise.epsilon is None else f", epsilon {promise.epsilon} of it now"
        shown = f"unit {promise.unit.name}, cap {promise.cap}{spends}, delta {promise.delta}"
        yield Mark((PROMISE,), shown, {})
    for name, table in catalog.tables.items():
        if table.confirm:
            links = ", ".join(f"{column} -> {key.references}" for column, key in table.foreign_keys.items())
            seen = (
                "anybody may see its rows" if table.is_public else "which columns are ids, empty or free text"
            )
            yield Mark(("tables", name), (f"{seen}; {links}" if links else seen), {})
        for kind, specs in table.marked.items():
            for column, spec in specs.items():
                if spec.confirm:
                    path = ("tables", name, kind, column)
                    yield Mark(path, _spec_words(spec), rounder_bounds(column, spec))


def _spec_words(spec: Column | Measure) -> str:
    if isinstance(spec, Column) and spec.listed:
        listed = spec.listed
        few = ", ".join(listed) if len(listed) <= 6 else f"{', '.join(listed[:3])}, .. {listed[-1]}"
        return f"{len(listed)} categories: {few}"
    if spec.lower is None:
        return "its type"
    return f"{spec.lower} to {spec.upper}"


def rounder_bounds(name: str, spec: Column | Measure) -> dict[str, str]:
    """Bounds that tell less about the rows than those that were read: natural ones, whole years, round numbers.

    Args:
        name: the column.
        spec: what the draft says of it.

    >>> rounder_bounds("age", Column(type="int", lower="17", upper="90"))
    {'lower': '0', 'upper': '120'}
    >>> rounder_bounds("seats", Column(type="int", lower="2", upper="450"))
    {'lower': '0', 'upper': '500'}
    >>> rounder_bounds("sold_on", Column(type="date", lower="2024-03-01", upper="2025-02-28"))
    {'lower': '2024-01-01', 'upper': '2025-12-31'}
    """
    if spec.lower is None or spec.upper is None:
        return {}
    if isinstance(spec, Column) and spec.type in ("date", "timestamp"):
        first, last = date.fromisoformat(spec.lower[:10]), date.fromisoformat(spec.upper[:10])
        bounds = (first.replace(month=1, day=1).isoformat(), last.replace(month=12, day=31).isoformat())
    else:
        bounds = _rounder_numbers(name, spec)
    return {} if bounds == (spec.lower, spec.upper) else {"lower": bounds[0], "upper": bounds[1]}


def _rounder_numbers(name: str, spec: Column | Measure) -> tuple[str, str]:
    low, high = Decimal(str(spec.lower)), Decimal(str(spec.upper))
    natural = natural_bounds(name, low, high)
    if natural is not None:
        return (str(natural[0]), str(natural[1]))
    cuts = spec.cuts if isinstance(spec, Column) else None
    width = Decimal(cuts.width) if cuts is not None and cuts.width else Decimal(1).scaleb(-(spec.scale or 0))
    step = round_width(max((high - low) / STEPS, width))
    while step % width:  # leaves of a cut axis begin at multiples of its width
        step = round_width(step * 2)
    low, high = outward(low, step, ROUND_FLOOR), outward(high, step, ROUND_CEILING)
    return (f"{low:f}", f"{high:f}")


def confirm_tables(text: str, choices: Mapping[str, bool]) -> tuple[str, tuple[ConfirmedTable, ...]]:
    """The text of a catalog without the marks of some tables.

    Args:
        text: a draft.
        choices: table, or `privacy` -> whether rounder bounds are written where there are some.

    Raises:
        InterfaceError: a table has no mark.
        CatalogError: the draft is no catalog, or a rounder bound does not fit it.
    """
    catalog = parse_catalog(text)
    marks = open_marks(catalog)
    groups = groups_of(marks)
    for name in choices:
        if name not in groups:
            hint = f"these do: {', '.join(groups)}" if groups else "every place is confirmed: publish it"
            raise InterfaceError(f"nothing in {name} needs confirmation", hint=hint)
    confirmed = [
        (group, rounder, tuple(mark for mark in marks if mark.group == group))
        for group, rounder in choices.items()
    ]
    root = yaml.compose(text, Loader=yaml.BaseLoader)
    assert isinstance(root, yaml.MappingNode)  # it was read as a catalog
    chosen = [mark for mark in marks if mark.group in choices]
    changes = [
        change for mark in chosen for change in _changes(text, root, mark, rounder=choices[mark.group])
    ]
    moved = {mark.path: mark for mark in chosen if choices[mark.group] and mark.rounder}
    changes += _moved_cuts(catalog, root, moved)
    for start, stop, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[stop:]
    parse_catalog(text)
    return text, tuple(confirmed)


Change = tuple[int, int, str]


def _changes(text: str, root: yaml.MappingNode, mark: Mark, *, rounder: bool) -> Iterator[Change]:
    """Edits of the text: marks are removed, and rounder bounds replace those that were read."""
    node = _node(root, mark.path)
    assert isinstance(node, yaml.MappingNode)  # the mark was read there
    pairs: list[tuple[yaml.ScalarNode, yaml.ScalarNode]] = node.value
    at = next(i for i, (name, _) in enumerate(pairs) if name.value == "confirm")
    start, stop = pairs[at][0].start_mark.index, pairs[at][1].end_mark.index
    if not node.flow_style:
        start, newline = text.rfind("\n", 0, start) + 1, text.find("\n", stop)
        yield start, len(text) if newline < 0 else newline + 1, ""
    elif at:
        yield pairs[at - 1][1].end_mark.index, stop, ""
    else:
        yield start, pairs[1][0].start_mark.index if len(pairs) > 1 else stop, ""
    for name, value in pairs:
        if rounder and name.value in mark.rounder:
            yield value.start_mark.index, value.end_mark.index, quoted(mark.rounder[name.value])


def _moved_cuts(
    catalog: Catalog, root: yaml.MappingNode, moved: Mapping[tuple[str, ...], Mark]
) -> Iterator[Change]:
    """Listed cuts, of columns and of views' axes, that must follow bounds that move."""
    for path, mark in moved.items():
        _, table, kind, name = path
        if kind == "measures":
            continue
        column = catalog.tables[table].columns[name]
        places = [(*path, "cuts")]
        for view, star_view in catalog.star.views.items():
            for i, axis in enumerate(star_view.axes):
                if (axis.meant.table, axis.meant.column) == (table, name):
                    places.append(("views", view, "axes", str(i), "cuts"))
        for place in places:
            node = _node(root, place)
            cuts = None
            if isinstance(node, yaml.SequenceNode):
                cuts = Cuts(width=None, at=tuple(cut.value for cut in node.value))
            elif isinstance(node, yaml.MappingNode) and column.type == "date":
                cuts = Cuts(width=node.value[0][1].value, at=())
            if node is not None and cuts is not None:
                written = followed_cuts(column, cuts, column.model_copy(update=dict(mark.rounder)))
                yield node.start_mark.index, node.end_mark.index, flow(written)


def _node(root: yaml.Node, path: Sequence[str]) -> yaml.Node | None:
    """The node at a path of keys and positions; None where the text has none, as of an axis that `quantiles` adds."""
    node: yaml.Node | None = root
    for key in path:
        if isinstance(node, yaml.SequenceNode):
            node = node.value[int(key)] if int(key) < len(node.value) else None
        elif isinstance(node, yaml.MappingNode):
            node = next((value for name, value in node.value if name.value == key), None)
        else:
            return None
    return node


def followed_cuts(column: Column, cuts: Cuts, moved: Column) -> Any:
    """Listed cuts of a column whose bounds move: by the same width up to the new ones, else with leaves that stay.

    Args:
        column: as it was.
        cuts: first values of its leaves.
        moved: the column with its new bounds.

    >>> spring = Column(type="date", lower="2024-04-01", upper="2024-06-30")
    >>> year = Column(type="date", lower="2024-01-01", upper="2024-12-31")
    >>> followed_cuts(spring, Cuts(at=("2024-05-01", "2024-06-01")), year)
    {'width': 'month'}
    >>> followed_cuts(spring, Cuts(at=("2024-05-09",)), year)
    ['2024-04-01', '2024-05-09', '2024-07-01']
    """
    starts = bin_starts(column, cuts)
    for width in widths(column):
        of_width = bin_starts(column, Cuts(width=width, at=()))
        # a quarter that began with March would begin with January
        if of_width == starts and starts[0] in bin_starts(moved, Cuts(width=width, at=())):
            return {"width": width}
    end, (lower, upper) = column.bounds[1], moved.bounds
    inside = [start for start in starts if start > lower]
    return [column.text(start) for start in [*inside, *([end + 1] if end < upper else [])]]


def record_of(catalog: Path) -> Path:
    """Path of the record of confirmations of a catalog."""
    return catalog.with_name(f"{catalog.stem}.confirmed.jsonl")


def confirm_file(catalog: Path, choices: Mapping[str, bool], by: str) -> tuple[ConfirmedTable, ...]:
    """Confirm tables of a catalog's file, and record it.

    Args:
        catalog: the draft.
        choices: as for `confirm_tables`.
        by: who says so.

    Raises:
        InterfaceError, CatalogError: as for `confirm_tables`; nothing is written.
        OSError: a file cannot be written.
    """
    if not by.strip():
        raise InterfaceError("the person who confirms is not named", hint="pass --by NAME")
    text, confirmed = confirm_tables(catalog_text(catalog), choices)
    fresh = catalog.with_name(f".{catalog.name}.confirming")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(catalog)
    append_record(catalog, [(by, table) for table in confirmed], text)
    return confirmed


def append_record(catalog: Path, confirmed: Iterable[tuple[str, ConfirmedTable]], text: str) -> None:
    """Write down who confirmed what.

    Args:
        catalog: the file.
        confirmed: names, and what each of them confirmed.
        text: the catalog as it then was.
    """
    for by, (group, rounder, marks) in confirmed:
        places = {
            ".".join(mark.path): {"read": mark.shown, "written": (rounder and mark.rounder) or "as read"}
            for mark in marks
        }
        line = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"), "by": by, "of": group, "places": places,
            "sha256": sha256(text.encode()).hexdigest(),
        }  # fmt: skip
        with record_of(catalog).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
