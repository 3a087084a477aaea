"""Python interfaces: DB-API, SQLAlchemy's dialect and Superset's engine; `describe`, `scan`, `complete` serve them."""
