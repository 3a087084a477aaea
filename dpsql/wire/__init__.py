"""A small read-only PostgreSQL server over releases, so that psql, JDBC and every Postgres driver can ask.

protocol    frames of protocol 3.0: reading them with limits, building them
encode      DuckDB types -> Postgres OIDs; values in text and binary form
scram       the server's side of SCRAM-SHA-256
catalogue   pg_catalog in an in-memory DuckDB, for \\d, getTables and getColumns
statements  what a statement is: a question, a catalogue query, a setting, or a word to nod at
cancel      keys of sessions, and stopping what one asks; passed on between processes
client      one connection: simple and extended protocol
server      listening: loopback, or TLS and a password
"""

from dpsql.wire.server import Options, check, serve

__all__ = ["Options", "check", "serve"]
