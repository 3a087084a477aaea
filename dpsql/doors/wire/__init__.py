"""A small read-only PostgreSQL server over releases, so that psql, JDBC and every Postgres driver can ask.

protocol    messages of protocol 3.0, and values in text and binary form
password    the server's side of SCRAM-SHA-256
catalogue   pg_catalog in an in-memory DuckDB, for \\d, getTables and getColumns
lists       what a catalogue query may be made of
statements  what a statement is: a question, a catalogue query, a setting, or a word to nod at
client      one connection: simple and extended protocol, cancelling
server      listening: loopback, or TLS and a password; several processes on one port
"""

from dpsql.doors.wire.server import Options, check, serve, serve_together

__all__ = ["Options", "check", "serve", "serve_together"]
