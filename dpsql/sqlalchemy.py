"""The SQLAlchemy dialect under the name that programs import; it lives in `dpsql.interfaces.python.sqlalchemy`."""

from dpsql.interfaces.python.sqlalchemy import DpsqlDialect

__all__ = ["DpsqlDialect"]
