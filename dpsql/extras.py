"""Libraries that dpsql can do without: what each is for, and what to install when it is wanted and not there.

An extra of pyproject.toml names each of them; `dpsql doctor` lists which are installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from dpsql.errors import InterfaceError


class Extra(NamedTuple):
    """A library that is installed on demand.

    Args:
        module: what is imported.
        package: its name on the package index.
        serves: what needs it.
    """

    module: str
    package: str
    serves: str


EXTRAS = {
    "arrow": Extra("pyarrow", "pyarrow", "arrow()"),
    "delta": Extra("deltalake", "deltalake", "rows in Delta tables"),
    "iceberg": Extra("pyiceberg.table", "pyiceberg", "rows in Iceberg tables"),
    "password": Extra("scramp", "scramp", "passwords of dpsql serve"),
    "sqlalchemy": Extra("sqlalchemy", "SQLAlchemy", "SQLAlchemy and Superset"),
    "mcp": Extra("mcp.server", "mcp", "dpsql mcp"),
    "metrics": Extra("prometheus_client", "prometheus-client", "metrics of dpsql serve"),
    "explore": Extra("uvicorn", "uvicorn", "dpsql explore"),
    "postgresql": Extra("psycopg", "psycopg", "rows in PostgreSQL"),
    "clickhouse": Extra("chdb", "chdb", "rows in ClickHouse"),
    "spark": Extra("pyspark.sql", "pyspark", "rows in Spark"),
}


def extra(name: str, instead: str = "") -> Any:
    """The module of an extra.

    Args:
        name: the extra, as `pip install "dpsql[name]"` has it.
        instead: what needs no extra, for the hint.

    Raises:
        InterfaceError: it is not installed; says what to install.
    """
    module = EXTRAS[name].module
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InterfaceError(
            f"{EXTRAS[name].package} is not installed", hint=f'pip install "dpsql[{name}]"{instead}'
        ) from error
