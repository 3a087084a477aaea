"""A small read-only PostgreSQL server over releases, so that psql, JDBC and every Postgres driver can ask.

protocol    messages of protocol 3.0, and values in text and binary form
password    the server's side of SCRAM-SHA-256
roles       who may come in, and which releases she may ask
tls         a key that others cannot read, a certificate that is valid
gate        places for connections, time-outs, waits after wrong passwords
logins      the log of logins
login       one connection until somebody has logged in
sessions    keys of sessions, for cancelling
catalogue   pg_catalog in an in-memory DuckDB, for \\d, getTables and getColumns
lists       what a catalogue query may be made of
statements  what a statement is: a question, a catalogue query, a setting, or a word to nod at
client      one connection: simple and extended protocol
server      listening: loopback, or TLS and a password
workers     several processes on one port, which end with their parent
"""

from dpsql.doors.wire.gate import ConnectionLimits
from dpsql.doors.wire.roles import open_roles
from dpsql.doors.wire.server import Options, check, read_guests, serve
from dpsql.doors.wire.workers import serve_together

__all__ = ["ConnectionLimits", "Options", "check", "open_roles", "read_guests", "serve", "serve_together"]
