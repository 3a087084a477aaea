"""Designed views as a person would write them, put into the catalog's own text; all else in it stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from dpsql.curate.design.questions import NewMeasures

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
    return quoted(str(value))


def with_views(text: str, views: Mapping[str, Entry], measures: NewMeasures) -> str:
    """The text of a catalog with other views and more measures.

    Args:
        text: a valid catalog.
        views: its new views; they take the place of all others.
        measures: for each table measures that it gains.
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
            changes.append(_more_measures(table[1], gained))
    for start, stop, new in sorted(changes, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


Pair = tuple[yaml.Node, yaml.MappingNode]


def _entry(node: yaml.Node, key: str) -> Pair | None:
    """The key and value of a mapping's entry."""
    pairs: Sequence[tuple[Any, Any]] = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((k, v) for k, v in pairs if k.value == key), None)


def _extent(text: str, key: yaml.Node, value: yaml.CollectionNode) -> tuple[int, int]:
    """Where an entry of the outermost mapping begins and ends, its last newline included."""
    end = value.end_mark.index
    if value.flow_style:
        newline = text.find("\n", end)
        end = len(text) if newline < 0 else newline + 1
    return key.start_mark.index, end


def _more_measures(table: yaml.MappingNode, gained: Mapping[str, Any]) -> tuple[int, int, str]:
    """What is put into a table's text: into its measures, or measures as its first entry."""
    measures = {
        name: {"expr": m.expr, "scale": m.scale, "lower": m.lower, "upper": m.upper}
        for name, m in gained.items()
    }
    measures_entry = _entry(table, "measures")
    node = table if measures_entry is None else measures_entry[1]
    inside = {"measures": measures} if measures_entry is None else measures
    start = node.start_mark.index
    if node.flow_style:
        return start + 1, start + 1, flow(inside)[1:-1] + (", " if node.value else "")
    indent = "\n" + " " * node.start_mark.column
    if measures_entry is None:
        lines = ["measures:", *(f"  {quoted(name)}: {flow(measure)}" for name, measure in measures.items())]
    else:
        lines = [f"{quoted(name)}: {flow(measure)}" for name, measure in measures.items()]
    return start, start, indent.join([*lines, ""])


def quoted(value: str) -> str:
    """A YAML scalar that is read back to the byte, quoted where YAML or a flow mapping would read it otherwise.

    >>> print(quoted("Private"), quoted(" Private"), quoted("a\\u2028b\\xa0"))
    Private " Private" "a\\u2028b\\u00a0"
    """
    if _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return "".join(c if c.isprintable() else _escaped(c) for c in json.dumps(value, ensure_ascii=False))


def _escaped(character: str) -> str:
    """What YAML folds or refuses, or nobody sees: line ends and blanks beyond ASCII, controls, marks of order."""
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
