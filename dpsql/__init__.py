"""dpsql: private analytics over star schemas, with SQL and error bars.

    import dpsql
    r = dpsql.query("SELECT COUNT(*) FROM sales", release="retail.dpsql")
    r.df(), r.stderr, r.interval(0.95)

Names load on first use, so that `import dpsql.client` on a person's own device loads neither numpy nor duckdb.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.3.0"

_HOMES = {
    "dpsql.api": (
        "query", "explain", "use", "publish", "append", "check_batch", "collection_plan", "collect", "simulate",
        "forget",
        "init", "design", "plan", "buy", "quote",
    ),
    "dpsql.interfaces.python.dbapi": (
        "connect", "apilevel", "threadsafety", "paramstyle", "Connection", "Cursor",
        "STRING", "BINARY", "NUMBER", "DATETIME", "ROWID",
        "Date", "Time", "Timestamp", "DateFromTicks", "TimeFromTicks", "TimestampFromTicks", "Binary",
    ),
    "dpsql.results.result": ("Result",),
    "dpsql.curator.frames": ("Catalog",),
    "dpsql.errors": (
        "Warning", "Error", "InterfaceError", "DatabaseError", "DataError", "OperationalError", "ReleaseError",
        "SourceError", "QueryTimeout", "IntegrityError", "InternalError", "ProgrammingError", "SqlSyntaxError",
        "UnknownName", "UnknownTable", "CatalogError", "NotSupportedError", "NoViewError", "PartialBinError",
        "RawRowsError", "PrivacyError",
        "BudgetExceeded", "LineageError", "ReleaseExists", "BatchOrderError", "BatchConflict",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", *_HOME]

if TYPE_CHECKING:
    from dpsql.api import append as append
    from dpsql.api import buy as buy
    from dpsql.api import check_batch as check_batch
    from dpsql.api import collect as collect
    from dpsql.api import collection_plan as collection_plan
    from dpsql.api import design as design
    from dpsql.api import explain as explain
    from dpsql.api import forget as forget
    from dpsql.api import init as init
    from dpsql.api import plan as plan
    from dpsql.api import publish as publish
    from dpsql.api import query as query
    from dpsql.api import quote as quote
    from dpsql.api import simulate as simulate
    from dpsql.api import use as use
    from dpsql.curator.frames import Catalog as Catalog
    from dpsql.interfaces.python.dbapi import connect as connect
    from dpsql.results.result import Result as Result


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpsql' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
