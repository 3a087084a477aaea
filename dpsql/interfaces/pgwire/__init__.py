"""A small read-only PostgreSQL server over releases, so that psql, JDBC and every Postgres driver can ask.

protocol    messages of protocol 3.0, and values in text and binary form
password    the server's side of SCRAM-SHA-256
roles       who may come in, and which releases she may ask
tls         a key that others cannot read, a certificate that is valid
gate        places for connections, time-outs, waits after wrong passwords
events      the log of logins and statements
metrics     numbers to watch, for Prometheus
config      the server's options as a file
login       one connection until somebody has logged in
sessions    keys of sessions, for cancelling
catalogue   pg_catalog in an in-memory DuckDB, for \\d, getTables and getColumns
lists       what a catalogue query may be made of
statements  what a statement is: a question, a catalogue query, a setting, or a word to nod at
client      one connection: simple and extended protocol
server      listening: loopback, or TLS and a password
workers     processes behind one port: they end with their parent, are replaced when they die and when files change
"""

from dpsql.interfaces.pgwire.events import event_log
from dpsql.interfaces.pgwire.login import ConnectionLimits
from dpsql.interfaces.pgwire.roles import open_roles
from dpsql.interfaces.pgwire.server import Options, check, read_guests, serve
from dpsql.interfaces.pgwire.workers import Sockets, shared_sockets, supervise

__all__ = [
    "ConnectionLimits", "Options", "check", "open_roles", "read_guests", "serve",
    "Sockets", "event_log", "shared_sockets", "supervise",
]  # fmt: skip
