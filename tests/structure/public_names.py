"""Names that leave the process: what users, files and other programs know dpsql by.

    python -m tests.structure.public_names          differences from the list
    python -m tests.structure.public_names --write  writes public_names.json

A rename inside of the package changes none of them. A change of one is a change for users: the list, the changelog and
the pages change with it, and names stored in a release change only with its format.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import dpsql
import dpsql.client
from dpsql import errors
from dpsql.catalog.base import Model
from dpsql.catalog.catalog import Catalog
from dpsql.catalog.model import CatalogFields
from dpsql.curator import certificate
from dpsql.interfaces.cli import all_commands
from dpsql.interfaces.python import dbapi
from dpsql.intervals.errorfunctions import ERRORS
from dpsql.release import format as stored
from dpsql.results.result import Result
from dpsql.sql.settings import SETTINGS

LIST = Path(__file__).with_suffix(".json")


def public_names() -> dict[str, list[str]]:
    """Every public name, by what it is a name of."""
    names: dict[str, Iterable[str]] = {
        "dpsql": dpsql.__all__,
        "dpsql.client": dpsql.client.__all__,
        "dpsql.dbapi": dbapi.__all__,
        "Result": (name for name in dir(Result) if not name.startswith("_")),
        "SQL functions of the error": ERRORS,
        "SQL settings": SETTINGS,
        "commands": all_commands(),
    }
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, Exception) and error.__module__ == errors.__name__:
            names[f"error {name}"] = [
                attribute
                for attribute in {*dir(error), *_parameters(error)} - {*dir(Exception)}
                if not attribute.startswith("_")
            ]
    for name, command in all_commands().items():
        names[f"command {name}"] = [word for parameter in command.params for word in parameter.opts]
    for model in _models(Model):
        if not model.__module__.startswith("dpsql.catalog.") or model is CatalogFields:
            continue
        fields = model.model_fields.items()
        names[f"catalog {model.__name__}"] = [field.alias or name for name, field in fields]
    assert "catalog " + Catalog.__name__ in names
    for name, value in vars(stored).items():
        if dataclasses.is_dataclass(value) and name.endswith("Meta"):
            names[f"release {name}"] = [field.name for field in dataclasses.fields(value)]
    for name, value in vars(certificate).items():
        if inspect.isclass(value) and issubclass(value, tuple) and value.__module__ == certificate.__name__:
            names[f"certificate {name}"] = value._fields  # type: ignore[attr-defined]
    return {what: sorted(listed) for what, listed in sorted(names.items())}


def _parameters(error: type[Exception]) -> set[str]:
    return set(inspect.signature(error.__init__).parameters) - {"args", "kwargs", "self"}


def _models(model: type[Model]) -> set[type[Model]]:
    return {heir for child in model.__subclasses__() for heir in (child, *_models(child))}


def changed() -> list[str]:
    """Lines `+ what: name` and `- what: name`: what is new, and what is gone, against the list."""
    before, now = json.loads(LIST.read_text(encoding="utf-8")), public_names()
    lines = []
    for what in sorted({*before, *now}):
        old, new = set(before.get(what, ())), set(now.get(what, ()))
        lines += [f"- {what}: {name}" for name in sorted(old - new)]
        lines += [f"+ {what}: {name}" for name in sorted(new - old)]
    return lines


if __name__ == "__main__":
    if "--write" in sys.argv:
        LIST.write_text(json.dumps(public_names(), indent=1) + "\n", encoding="utf-8")
    print("\n".join(changed()) or "as listed")
