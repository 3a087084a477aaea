"""Superset's engine specification: time grains, date literals, and what a release does not do.

Loaded by Superset itself through the entry point `superset.db_engine_specs`; docs/interfaces.md takes a
reader from pip install to a chart with error bars.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import types
from superset.constants import TimeGrain
from superset.db_engine_specs.base import BaseEngineSpec
from superset.sql.parse import SQLGLOT_DIALECTS

SQLGLOT_DIALECTS.setdefault("dpsql", SQLGLOT_DIALECTS["duckdb"])

GRAINS = ("SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")


class DpsqlEngineSpec(BaseEngineSpec):  # type: ignore[misc]  # Superset has no type information here
    """dpsql releases in Superset."""

    engine = "dpsql"
    engine_name = "dpsql"
    sqlalchemy_uri_placeholder = "dpsql:////path/to/retail.dpsql"
    default_driver = "dpsql"

    allows_joins = True
    allows_subqueries = True
    allows_sql_comments = True
    allows_alias_in_select = True
    allow_ctes_in_subqueries = True
    disable_ssh_tunneling = True
    supports_file_upload = False
    supports_multivalues_insert = False

    _time_grain_expressions: ClassVar[dict[str | None, str]] = {
        None: "{col}",
        **{getattr(TimeGrain, word): f"DATE_TRUNC('{word}', {{col}})" for word in GRAINS},
    }

    @classmethod
    def epoch_to_dttm(cls) -> str:
        """Seconds since the epoch as a timestamp."""
        return "TO_TIMESTAMP({col})"

    @classmethod
    def convert_dttm(
        cls, target_type: str, dttm: datetime, db_extra: dict[str, Any] | None = None
    ) -> str | None:
        """A moment as a literal of a column's type.

        Args:
            target_type: the column's SQL type.
            dttm: the moment.
            db_extra: not used.

        Returns:
            SQL text, or None for types that are no dates.
        """
        kind = cls.get_sqla_column_type(target_type)
        if isinstance(kind, types.Date):
            return f"DATE '{dttm.date().isoformat()}'"
        if isinstance(kind, types.DateTime):
            return f"TIMESTAMP '{dttm.isoformat(sep=' ', timespec='seconds')}'"
        return None
