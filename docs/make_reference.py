"""Writes docs/catalog.md and docs/catalog.schema.json from the catalog's models, docs/api.md from docstrings, the lists
in docs/sql.md from the tables of functions, and those in docs/engines.md from the table of stored types.

Run `make docs`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from importlib import import_module
from pathlib import Path
from textwrap import fill
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

import dpsql
from docs.catalog_keys import KEYS
from dpsql.catalog.base import MeasureName, Model, OneOf
from dpsql.catalog.catalog import Catalog
from dpsql.catalog.model import Unit
from dpsql.catalog.columns import Column
from dpsql.catalog.tables import Summary
from dpsql.engines.values import READS, TYPES
from dpsql.intervals.errorfunctions import ERRORS
from dpsql.row_expressions import NAMED_OVER_ROWS, NAMED_SCALARS, SCALARS, WINDOWS
from tests.structure.bounds import CORE, code_lines, core_lines, is_below
from tests.structure.graph import reading_order
from tests.structure.source import the_package

DOCS = Path(__file__).parent
NOTE = "<!-- written by docs/make_reference.py; a test holds it equal to the code -->\n\n"

EXAMPLE = """\
dpsql: 1
name: shop
source: {kind: parquet, root: data, tables: {sales: sales.parquet, customer: customer.parquet}}
privacy: {lineage: shop, cap: 4.0, unit: customer.customer_id, epsilon: 1.0}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {
      age: {type: int, lower: 18, upper: 89}, region: {type: string, categories: [north, south]}}}
  sales: {role: fact, foreign_keys: {customer_id: customer}, max_ids: 20, columns: {
      amount: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true}}}
views:
  demand: {of: sales, axes: [customer.age, customer.region], measures: [count, sales.amount]}
"""

CATALOG_HEAD = f"""# Catalog reference

{NOTE}A catalog is one YAML file. This is a whole one:

```yaml
{EXAMPLE}```

`dpsql init data/` drafts one from files, and `catalog/` holds more. An unknown key is refused, with the nearest known
one. Numbers are read as text, so 0.1 stays exactly 1/10. `${{NAME}}` in a source is taken from the environment.
Editors check and complete a catalog by [its schema](catalog.schema.json). How to go about it: [curators](curator.md).

"""

API_HEAD = f"""# API

{NOTE}```python
import dpsql

r = dpsql.query("SELECT COUNT(*) FROM sales", release="retail.dpsql")
r.scalar(), r.stderr, r.interval(0.95)
```

What Python offers. `dpsql --help` lists the commands, and `dpsql COMMAND --help` their options;
[exit codes](interfaces.md#exit-codes), [SQL](sql.md) and [catalogs](catalog.md) have pages of their own.

"""

WORDS: dict[Any, str] = {
    str: "text",
    MeasureName: "text",
    int: "whole number",
    bool: "true or false",
    Fraction: "number",
    float: "number",
    Any: "value",
    Unit: "text",
}


PEP_249 = ("commit", "rollback", "close", "executemany", "fetchone", "fetchmany", "fetchall", "setinputsizes",
           "setoutputsize", "cursor", "description", "rowcount", "rownumber")  # fmt: skip
"""Methods and attributes of a connection and a cursor that do what PEP 249 says, and are only named."""

# Where a YAML author may write less than the whole mapping.
SHORTHANDS: dict[str, dict[str, Any]] = {
    "AxisSpec": {"type": "string", "description": "table.column, without `by` or `cuts`"},
    "ForeignKey": {"type": "string", "description": "the table, with on_missing: keep, nullable: false"},
    "Cuts": {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
}


class Words(GenerateJsonSchema):
    """Writes a default that is one word in a catalog as that word."""

    def encode_default(self, dft: Any) -> Any:
        """The word, or what pydantic writes."""
        word = getattr(dft, "name", None)
        return word if isinstance(word, str) else super().encode_default(dft)


def catalog_schema() -> dict[str, Any]:
    """The schema, shorthands included.

    Returns:
        A JSON Schema (draft 2020-12) as plain values.
    """
    schema = Catalog.model_json_schema(by_alias=True, schema_generator=Words)
    definitions = schema["$defs"]
    for name, short in SHORTHANDS.items():
        definitions[name] = {"anyOf": [short, definitions[name]]}
    measures = definitions["View"]["properties"]["measures"]
    names = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "names with equal shares",
    }
    definitions["View"]["properties"]["measures"] = {"anyOf": [names, measures]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dpsql catalog", **schema}


def schema_text() -> str:
    """The schema as the text of the file that ships in ``docs``."""
    return json.dumps(catalog_schema(), indent=2, ensure_ascii=False, default=str) + "\n"


def type_words(annotation: Any) -> str:
    """What one may write for a value, in Markdown."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_words(parts[0])
    if origin is Literal:
        return ", ".join(f"`{part}`" for part in parts)
    if origin in (Union, UnionType):
        return " or ".join(type_words(part) for part in parts if part is not NoneType)
    if origin is dict:
        return f"mapping of {type_words(parts[0])} to {type_words(parts[1])}"
    if origin is tuple:
        return f"list of {type_words(parts[0] if parts[-1] is Ellipsis else Any)}"
    if inspect.isclass(annotation) and issubclass(annotation, Model):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    return WORDS[annotation]


def one_of(words: OneOf) -> str:
    """The words that a key takes."""
    return ", ".join(f"`{word}`" for word in words.values)


def models_in(annotation: Any) -> Iterator[tuple[str, type[Model]]]:
    """(what is added to the path, model) of every model inside a type."""
    if inspect.isclass(annotation) and issubclass(annotation, Model):
        yield "", annotation
    added = {dict: ".<name>", tuple: "[]"}.get(get_origin(annotation), "")
    for part in get_args(annotation):
        for path, model in models_in(part):
            yield added + path, model


def with_paths(
    model: type[Model], path: str, paths: dict[type[Model], list[str]]
) -> dict[type[Model], list[str]]:
    """Every model that a catalog is made of, with the key paths where it stands."""
    paths.setdefault(model, []).append(path)
    for name, field in model.model_fields.items():
        for added, inner in models_in(field.annotation):
            with_paths(inner, f"{path}.{field.alias or name}{added}".lstrip("."), paths)
    return paths


def default_words(field: FieldInfo) -> str:
    """What holds where a key is left out."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value == "" or value == () or isinstance(value, dict | Model):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else getattr(value, 'name', value)}`"


def fields_of(model: type[Model]) -> dict[str, FieldInfo]:
    """The fields that a catalog may write: a summary is a column made of rows, which has no list and no report."""
    refused = ("from_", "axis", "reported") if model is Summary else ()
    return {name: field for name, field in model.model_fields.items() if name not in refused}


def own_fields(model: type[Model]) -> tuple[dict[str, FieldInfo], list[str]]:
    """The fields that a model's table shows, and the names of those that a summary has from its column."""
    fields = fields_of(model)
    column = Column.model_fields if model is Summary else {}
    shared = [
        name
        for name, field in fields.items()
        if name in column and column[name].description == field.description
    ]
    return {name: field for name, field in fields.items() if name not in shared}, shared


def catalog_page() -> str:
    """docs/catalog.md."""
    page = CATALOG_HEAD
    for model, paths in with_paths(Catalog, "", {}).items():
        text = inspect.cleandoc(model.__doc__ or "")
        places = ", ".join(f"`{path}`" for path in dict.fromkeys(paths) if path)
        page += f"## {model.__name__}\n\n" + (f"At {places}. " if places else "") + text + "\n\n"
        if model.__name__ in SHORTHANDS:
            short = SHORTHANDS[model.__name__]
            kind = {"string": "text", "array": "a list"}[short["type"]]
            page += (
                f"Or just {kind}" + (f": {short['description']}" if "description" in short else "") + ".\n\n"
            )
        page += "| key | type | default | meaning | example |\n|---|---|---|---|---|\n"
        keys = KEYS[model.__name__].keys
        own, shared = own_fields(model)
        for name, field in own.items():
            cells = (
                f"`{field.alias or name}`",
                next((one_of(part) for part in field.metadata if isinstance(part, OneOf)), None)
                or type_words(field.annotation),
                default_words(field),
                field.description,
                f"`{keys[field.alias or name][0]}`",
            )
            page += "| " + " | ".join((cell or "").replace("|", "\\|") for cell in cells) + " |\n"
        if shared:
            names = ", ".join(f"`{name}`" for name in shared)
            page += f"\nAs at a [column](#column): {names}.\n"
        page += "\n"
    return page.rstrip() + "\n"


def written(parameter: inspect.Parameter) -> str:
    """A parameter without its type; types are in the code and in `help`."""
    return str(parameter.replace(annotation=parameter.empty))


def signature(called: Any, name: str) -> str:
    """Names and defaults of a signature."""
    parameters = [part for part in inspect.signature(called).parameters.values() if part.name != "self"]
    first = next((at for at, part in enumerate(parameters) if part.kind is part.KEYWORD_ONLY), None)
    words = [written(part) for part in parameters]
    starred = any(part.kind is part.VAR_POSITIONAL for part in parameters)
    if first is not None and not starred:
        words.insert(first, "*")
    line = f"{name}({', '.join(words)})"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(words) + ",\n)"


def one_line_raises(text: str) -> str:
    """A docstring whose section of errors is one line of their names; the table of errors says when each comes."""
    section = re.search(r"^Raises:\n((?:    .*\n?)+)", text, re.M)
    if section is None:
        return text
    names = re.findall(r"^    ([\w.]+(?:, \w+)*): ", section[1], re.M)
    shown = ", ".join(f"`{name}`" for line in names for name in line.split(", "))
    return text.replace(section[0], f"*Raises* {shown}.\n")


def prose(text: str | None) -> str:
    """A docstring in Markdown: sections become paragraphs, arguments a list."""
    out: list[str] = []
    for line in one_line_raises(inspect.cleandoc(text or "")).splitlines():
        if re.fullmatch(r"(Args|Attributes|Returns|Example):", line):
            out += [f"*{line[:-1]}*", ""]
        elif re.match(r"    \w+: computes ", line):
            continue  # how a result is made, of no use to who reads one
        elif re.match(r"    \*?[\w, ]+: ", line) and out:
            name, _, meaning = line.strip().partition(": ")
            out.append(f"- `{name}`: {meaning}")
        else:
            out.append("  " + line.strip() if line.startswith("        ") else line.strip())
    return "\n".join(out).strip() + "\n\n"


def described(name: str, value: Any, level: int) -> str:
    """A function, or a class with its public attributes and methods."""
    if not inspect.isclass(value):
        return f"{'#' * level} {name}\n\n```python\n{signature(value, name)}\n```\n\n{prose(value.__doc__)}"
    page = f"{'#' * level} {name}\n\n{prose(value.__doc__)}"
    members = {
        key: item for key, item in vars(value).items() if not key.startswith("_") and key not in PEP_249
    }
    short = {key: item for key, item in members.items() if isinstance(item, property | cached_property)}
    if short:
        page += "| attribute | |\n|---|---|\n"
        page += "".join(f"| `{key}` | {first_line(item.__doc__)} |\n" for key, item in short.items()) + "\n"
    methods = {key: item for key, item in members.items() if inspect.isfunction(item) and item.__doc__}
    return page + "".join(method_line(key, item) for key, item in methods.items()) + "\n" * bool(methods)


def method_line(name: str, method: Any) -> str:
    """A method as an item of a list: signature without types, summary, and the paragraph below `Returns:`."""
    text = inspect.cleandoc(method.__doc__)
    returns = re.search(r"^Returns:\n((?:    .*\n?)+)", text, re.M)
    words = " ".join((first_line(text) + " " + (returns[1] if returns else "")).split())
    line = f"- `{' '.join(signature(method, name).split())}`: {words}"
    return fill(line, 119, subsequent_indent="  ", break_long_words=False) + "\n"


def first_line(text: str | None) -> str:
    """The summary of a docstring."""
    return inspect.cleandoc(text or "").split("\n")[0]


def exported() -> dict[str, dict[str, Any]]:
    """What `dpsql` exports, by home, in order."""
    homes: dict[str, dict[str, Any]] = {}
    for name in dpsql.__all__:
        value = getattr(dpsql, name)
        homes.setdefault(dpsql._HOME.get(name, "dpsql"), {})[name] = value
    return homes


def api_page() -> str:
    """docs/api.md."""
    homes, page = exported(), API_HEAD
    page += "## Functions\n\n"
    page += "".join(described(f"dpsql.{name}", value, 3) for name, value in homes["dpsql.api"].items())
    page += "## What an answer is\n\n" + described("Result", homes["dpsql.results.result"]["Result"], 3)
    page += "## DB-API\n\n" + prose(import_module("dpsql.interfaces.python.dbapi").__doc__)
    database = homes["dpsql.interfaces.python.dbapi"]
    page += "".join(
        described(f"dpsql.{name}", database[name], 3) for name in ("connect", "Connection", "Cursor")
    )
    plain = [*(name for name in database if name not in ("connect", "Connection", "Cursor")), *PEP_249]
    page += "As PEP 249 has them: " + ", ".join(f"`{name}`" for name in plain) + ".\n\n"
    page += "## SQLAlchemy\n\n" + prose(import_module("dpsql.interfaces.python.sqlalchemy").__doc__)
    page += "## Errors\n\n| error | is a | exit code | when |\n|---|---|---|---|\n"
    for name, error in homes["dpsql.errors"].items():
        code = getattr(error, "exit_code", "")
        page += f"| `{name}` | `{error.__base__.__name__}` | {code} | {first_line(error.__doc__)} |\n"
    return page


def error_functions() -> str:
    """Every function of an error."""
    levels = {
        name: f"[, '{'|'.join(error.parts)}']" if error.parts else "[, level]" * error.takes_level
        for name, error in ERRORS.items()
    }
    return "\n".join(
        f"- `{n.upper()}({'a, b' if e.compares else 'x'}{levels[n]})`: {e.summary}" for n, e in ERRORS.items()
    )


def functions_of_rows() -> set[str]:
    """Pure functions under their SQL names; the parser's own types of conversions between dialects have none."""
    words = {
        re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() for name in SCALARS | WINDOWS if "OrDs" not in name
    }
    return words | NAMED_SCALARS | NAMED_OVER_ROWS


def sql_page() -> str:
    """docs/sql.md, its lists written anew between their marks."""
    lists = {
        "errors": error_functions(),
        "functions": fill(", ".join(f"`{name}`" for name in sorted(functions_of_rows())) + ".", 115),
    }
    return with_lists("sql.md", lists)


def stored_types() -> str:
    """The table of source values: what is lost of them; types that are treated alike share a row."""
    alike: dict[tuple[str, str], list[str]] = {}
    for t in TYPES:
        changes = "; ".join(change for change in (t.rounding, t.overflow) if not change.startswith("none"))
        alike.setdefault((changes or "nothing", t.equality), []).append(f"{', '.join(t.sources)}: {t.stored}")
    rows = [("; ".join(types), *treatment) for treatment, types in alike.items()]
    head = ("stored type", "rounded or cut", "keys compared as")
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def declared_types() -> str:
    """Which stored types each declared type reads; those that read the same share a row."""
    alike: dict[frozenset[str], list[str]] = {}
    for name, families in READS.items():
        alike.setdefault(frozenset(families), []).append(f"`{name}`")
    rows = [
        (", ".join(names), ", ".join(sorted(map(str.lower, families)))) for families, names in alike.items()
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (("declared", "reads"), ("---", "---"), *rows))


def engines_page() -> str:
    """docs/engines.md, its tables of stored types written anew between their marks."""
    return with_lists("engines.md", {"stored": stored_types(), "declared": declared_types()})


def audit_page() -> str:
    """docs/audit.md, its table of the modules that see raw rows or entropy written anew between its marks."""
    package = the_package()
    names = [name for name in reading_order(package) if is_below(package.by_name[name], CORE)]
    parts: dict[str, list[str]] = {place.split(".")[0]: [] for place in CORE}
    for name in names:
        parts[name.split(".")[1]].append(name)
    lines = [("package", "modules in reading order", "code lines"), ("---", "---", "--:")]
    lines += [_audited(f"`{part}/`", modules) for part, modules in parts.items()]
    lines.append(("all", "", f"{len(core_lines(package)):,}"))
    engines = [("engine", "modules of its own", "code lines"), ("---", "---", "--:")]
    engines += [
        _audited(title, [f"dpsql.engines.{module}" for module in own]) for title, own in ENGINES.items()
    ]
    tables = ["\n".join(f"| {' | '.join(row)} |" for row in rows) for rows in (lines, engines)]
    return with_lists("audit.md", {"modules": "\n\n".join(tables)})


ENGINES = {
    "files by DuckDB": ("duck", "file_formats", "frames"),
    "servers": ("server", "postgresql", "spark", "clickhouse"),
}
"""Engines with the modules that no other kind of source needs."""


def _audited(title: str, modules: list[str]) -> tuple[str, str, str]:
    """A line of the audit path."""
    package, end = the_package(), "__init__"
    read = [package.by_name[name] for name in modules if code_lines(package.by_name[name])]
    short = [end if module.path.name == f"{end}.py" else module.name.rpartition(".")[2] for module in read]
    return title, " ".join(f"`{name}`" for name in short), f"{sum(map(code_lines, read)):,}"


def with_lists(name: str, lists: dict[str, str]) -> str:
    """A page with what stands between some marks written anew."""
    page = (DOCS / name).read_text(encoding="utf-8")
    for mark, text in lists.items():
        before, _, rest = page.partition(f"<!-- {mark} -->\n")
        page = f"{before}<!-- {mark} -->\n{text}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


if __name__ == "__main__":
    (DOCS / "catalog.md").write_text(catalog_page(), encoding="utf-8")
    (DOCS / "catalog.schema.json").write_text(schema_text(), encoding="utf-8")
    (DOCS / "api.md").write_text(api_page(), encoding="utf-8")
    (DOCS / "sql.md").write_text(sql_page(), encoding="utf-8")
    (DOCS / "engines.md").write_text(engines_page(), encoding="utf-8")
    (DOCS / "audit.md").write_text(audit_page(), encoding="utf-8")
