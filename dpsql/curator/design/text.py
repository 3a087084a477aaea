"""Designed views as a person would write them, put into the catalog's own text; all else in it stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from dpsql.central.bounding import EXCESS_SHARE
from dpsql.curator.design.questions import NewMeasures

WIDE = 110

_PLAIN = re.compile(
    r"[A-Za-z_][A-Za-z0-9_ .-]*[A-Za-z0-9_]|[A-Za-z_]|-?\d+(\.\d+)?|\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?"
)
_WORDS = ("true", "false", "null", "yes", "no", "on", "off", "y", "n")

Entry = Mapping[str, Any]


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
    at = _entry(root, "views")
    changes.append((len(text), len(text), f"\n{block}") if at is None else (*_extent(text, *at), block))
    tables = _entry(root, "tables")
    for name, gained in measures.items():
        table = None if tables is None else _entry(tables[1], name)
        if table is not None:
            keys = ("expr", "scale", "lower", "upper")
            described = {n: {key: getattr(m, key) for key in keys} for n, m in gained.items()}
            changes.append(_more(table[1], "measures", described))
    table = None if tables is None else _entry(tables[1], people)
    if table is not None:
        changes += _other_summaries(text, table[1], summaries, unused)
        summed = any(f"{people}.{name}" in view["measures"] for view in views.values() for name in summaries)
        if summed and _entry(table[1], "excess_share") is None:
            changes.append(_first(table[1], f"excess_share: {float(EXCESS_SHARE)}"))
    for start, stop, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


Pair = tuple[yaml.Node, yaml.MappingNode]


def _entry(node: yaml.Node, key: str) -> Pair | None:
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
    section_entry = None if fresh else _entry(table, section)
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
    section = _entry(table, "summaries")
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
