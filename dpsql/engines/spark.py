"""Spark: tables of its catalog or Parquet files, counted by its executors.

    source: {kind: spark, root: "${SPARK_MASTER}", tables: {sales: shop.sales, customer: /lake/customer}}

`root` is a master (`local[4]`, `spark://..`, `yarn`) or a Spark Connect server (`sc://..`); without one Spark's own
configuration decides. dpsql takes a session of its own, so that its settings (ANSI, UTC, no variables in texts) are
nobody else's. Nothing is created.

Each table is counted by one statement. Spark has no transaction over several, so between two of them rows may move; a
unit's rows are counted in the scan that bounds them, and so each bound holds.

**Privacy**: only cells leave the executors. A message names the step and Spark's condition, never its text, which may
quote a value; the loggers that would print it are silenced.
"""

from __future__ import annotations

import logging
import posixpath
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Any, ClassVar

import numpy as np

from dpsql.engines.dialect import Dialect, moment, searched
from dpsql.engines.joined_rows import BATCH, engine_lost
from dpsql.engines.server import StoredTable
from dpsql.engines.values import SPARK as SPARK_TYPES
from dpsql.errors import EngineLost
from dpsql.extras import extra
from dpsql.row_expressions.typed import guarded
from dpsql.tree import IntArray


def _literal(text: str) -> str:
    """A backslash escapes, `${x}` is a variable, and two quotes are two literals in old versions."""
    for mark, written in (("\\", "\\\\"), ("'", "\\'"), ("$", "\\u0024")):
        text = text.replace(mark, written)
    return f"'{text}'"


def _instant(microseconds: int, kind: str) -> str:
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"TIMESTAMP '{moment(microseconds)}Z'"
    return f"TIMESTAMP_NTZ '{moment(microseconds)}'"


def _text(value: str) -> str:
    return f"CAST({value} AS STRING)"


def _wide_quotient(dividend: str, divisor: str) -> str:
    """DIV is a BIGINT, so the quotient is made of what is above 2^40 and of what is below; each is exact."""
    large = f"(CAST({divisor} AS DECIMAL(38,0)) * CAST({1 << 40} AS DECIMAL(38,0)))"
    above = f"CAST(({dividend}) DIV {large} AS DECIMAL(38,0)) * CAST({1 << 40} AS DECIMAL(38,0))"
    below = f"CAST((({dividend}) % {large}) DIV ({divisor}) AS DECIMAL(38,0))"
    return f"({above} + {below})"


def _without(value: str, characters: str) -> str:
    """Characters by their numbers: a text of SQL is read before its escapes are."""
    escaped = "".join(f"\\u{ord(character):04X}" for character in characters)
    return f"translate({value}, '{escaped}', '')"


SPARK = Dialect(
    wide="DECIMAL(38,0)",
    double="DOUBLE",
    reads_any=False,
    materialised=None,
    identifier=lambda name: "`" + name.replace("`", "``") + "`",
    literal=_literal,
    is_nan=lambda value: f"isnan({value})",
    quotient=lambda dividend, divisor: f"({dividend}) DIV ({divisor})",
    wide_quotient=_wide_quotient,
    instant=_instant,
    days=lambda value: f"CAST(unix_date({value}) AS BIGINT)",
    microseconds=lambda value: f"unix_micros(CAST({value} AS TIMESTAMP))",
    position=searched(_text, _literal),
    text=_text,
    octets=lambda value: f"octet_length({value})",
    without=_without,
    number=lambda digits: f"CAST(conv({digits}, 16, 10) AS BIGINT)",
    hex=lambda value: f"lower(hex({value}))",
    sha256=lambda prefix, text: f"sha2(concat(unhex('{prefix}'), encode({text}, 'UTF-8')), 256)",
    chance="rand()",
    exact=lambda operation: guarded(operation, "DECIMAL(38,0)"),
    # the sum of BIGINTs is one, and raises where it overflows
    total=lambda value, wide: f"sum(CAST({value} AS DECIMAL(38,0)))" if wide else f"sum({value})",
)
"""Spark's words; settings of the session: ANSI, UTC. A slash would compute in floats."""

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.variable.substitute": "false",  # `${x}` in a category would be looked up
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",  # a date before 1582 would stop a publish
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
}
_EVERY = 0.25
"""Seconds between two interruptions of what ran too long."""
_CHAR = "__CHAR_VARCHAR_TYPE_STRING"
_FILES = re.compile(r"[/\\]|\.parquet$")


def stored_type(declared: str, metadata: dict[str, Any]) -> str:
    """A column's type as the table of source values lists it.

    Args:
        declared: as Spark writes it.
        metadata: of the field; says what was CHAR(n) or VARCHAR(n).

    >>> stored_type("float", {}), stored_type("string", {"__CHAR_VARCHAR_TYPE_STRING": "char(5)"})
    ('float', 'char(5)')
    """
    return declared if "collate" in declared else str(metadata.get(_CHAR, declared))


class SparkSession:
    """A session of our own on a Spark.

    Args:
        root: a master or a Spark Connect server; empty for Spark's own configuration.
        seconds: time limit of a statement.

    Raises:
        InterfaceError: PySpark is not installed.
        EngineLost: Spark does not start, or cannot be reached.
    """

    name: ClassVar[str] = SPARK_TYPES
    dialect: ClassVar[Dialect] = SPARK

    def __init__(self, root: str, seconds: int) -> None:
        self._failures = _failures()
        self._seconds = seconds
        self._address = f"spark {root.split(';')[0]}"  # what follows a semicolon may be a token
        # it prints statements and what they failed on
        logging.getLogger("SQLQueryContextLogger").disabled = True
        with self._step("starting"):
            spark = extra("spark").SparkSession
            self._is_own = spark.getActiveSession() is None
            builder = spark.builder.appName("dpsql")
            if root:
                builder = builder.remote(root) if root.startswith("sc://") else builder.master(root)
            self._session = builder.getOrCreate().newSession()
            for name, value in SETTINGS.items():
                self._session.conf.set(name, value)

    def table(self, place: str) -> StoredTable | None:
        """See `Session`; a place is a name (`shop.sales`), or the path of Parquet files."""
        with self._step("reading the schema"):
            if _FILES.search(place):
                name, is_base = f"parquet.{SPARK.identifier(place)}", True
            else:
                if not self._session.catalog.tableExists(place):
                    return None
                is_base = self._session.catalog.getTable(place).tableType in ("MANAGED", "EXTERNAL")
                name = ".".join(map(SPARK.identifier, place.split(".")))
            fields = self._session.table(name).schema.fields
        types = {f.name: stored_type(f.dataType.simpleString(), f.metadata) for f in fields}
        return StoredTable(name, types, is_base)

    def places(self, name: str) -> tuple[str, ...]:
        """See `Session`: a path, or the name that Spark's catalog resolves; an installation has no identifier."""
        if _FILES.search(name):
            path = posixpath.normpath(name.removeprefix("file:"))
            return (f"{self._address}#{'/' * path.startswith('/')}{path.lstrip('/')}",)
        with self._step("resolving a table's name"):
            table = self._session.catalog.getTable(name)
        resolved = (table.catalog, *(table.namespace or ()), table.name)
        return (
            f"{self._address}#{'.'.join(SPARK.identifier(component) for component in resolved if component).lower()}",
        )

    def rows(self, sql: str, step: str) -> list[tuple[Any, ...]]:
        table = self._arrow(sql, step)
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def columns(self, sql: str, step: str) -> Mapping[str, IntArray]:
        table = self._arrow(sql, step)
        return {name: np.asarray(table[name].to_numpy(), np.int64) for name in table.column_names}

    def batches(self, sql: str, step: str) -> Iterator[list[tuple[Any, ...]]]:
        for batch in self._arrow(sql, step).to_batches(BATCH):
            yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def lookup(self, keys: str, kind: str) -> str:
        spark_types = {
            "VARCHAR": "STRING",
            "TIMESTAMP": "TIMESTAMP_NTZ",
            "TIMESTAMP WITH TIME ZONE": "TIMESTAMP",
        }
        schema = f"array<struct<key: {spark_types.get(kind, kind)}, leaf: INT>>"
        return f"(SELECT inline(from_json({SPARK.literal(keys)}, '{schema}')))"

    def row_hash(self, columns: Sequence[str]) -> str:
        return f"xxhash64({', '.join(columns)})"

    def close(self) -> None:
        """End the Spark that was started here; the session held no table."""
        if self._is_own:
            with suppress(*self._failures):
                self._session.stop()

    def _arrow(self, sql: str, step: str) -> Any:
        with self._limited(step), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return self._session.sql(sql).toArrow()

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            condition = error.getCondition() if hasattr(error, "getCondition") else None
            why = f"condition {condition}" if condition else "it was lost"
            raise engine_lost(self.name, step, why) from None

    @contextmanager
    def _limited(self, step: str) -> Iterator[None]:
        """Spark has no time limit of a statement; the session is our own, so all of it may be interrupted."""
        done, expired = Event(), Event()

        def watch() -> None:
            if not done.wait(self._seconds):
                expired.set()
            while not done.wait(_EVERY):  # what is being planned cannot be interrupted yet
                with suppress(*self._failures):
                    self._session.interruptAll()

        Thread(target=watch, daemon=True).start()
        try:
            with self._step(step):
                yield
        except EngineLost:
            if expired.is_set():
                raise engine_lost(self.name, step, "it ran longer than allowed") from None
            raise
        finally:
            done.set()


def _failures() -> tuple[type[Exception], ...]:
    """Exceptions of PySpark where a statement fails, Spark was stopped, or its process is gone."""
    extra("spark")
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, OSError, EOFError)
