"""The SQLAlchemy dialect under the name that programs import; it lives in `dpsql.doors.sqlalchemy`."""

from dpsql.doors.sqlalchemy import DpsqlDialect

__all__ = ["DpsqlDialect"]
