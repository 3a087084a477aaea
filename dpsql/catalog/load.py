"""Reading a catalog: YAML with every scalar as text, no duplicate keys; errors give file, line, path."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from dpsql.catalog.base import Problem
from dpsql.catalog.catalog import Catalog
from dpsql.catalog.derived import check_binding
from dpsql.catalog.model import View
from dpsql.errors import CatalogError

if TYPE_CHECKING:
    import yaml

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

    node: yaml.Node | None = yaml.compose(text, Loader=yaml.BaseLoader)
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


def _written(path: tuple[str, ...], lines: Lines) -> tuple[str, ...]:
    """A key path without the parts that pydantic adds for the branches of a union."""
    while lines and path and path not in lines:
        path = path[:-1]
    return path


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
    path = path if isinstance(cause, Problem) else _written(path, lines)
    remaining = error.error_count() - 1
    more = f" (and {remaining} more)" if remaining else ""
    return _place(name, path, lines) + re.sub(r"\s+", " ", message) + more
