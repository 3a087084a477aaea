"""A small read-only PostgreSQL server over releases, so that psql, JDBC and every Postgres driver can ask.

protocol    messages of protocol 3.0, and DuckDB's types as PostgreSQL's, each value in text and binary form
roles       who may come in, with which password, and which releases she may ask
login       one connection until somebody has logged in: options, places, time-outs, waits, keys for cancelling
events      the log of logins and statements, and numbers to watch, for Prometheus
scheduler   turns of clients' statements and messages
catalogue   pg_catalog in an in-memory DuckDB, for \\d, getTables and getColumns, what a query of it may be made of, and
            its functions
relations   its tables
rewrite     PostgreSQL's spellings turned into DuckDB's
statements  what a statement is: a question, a catalogue query, a setting, or a word to nod at
portals     types of parameters, cursors and COPY
client      one connection: simple and extended protocol
server      listening: loopback, or TLS and a password; the server's options as a file; processes behind one port, which
            end with their parent and are replaced when they die and when files change
"""

from dpsql.interfaces.pgwire.events import event_log
from dpsql.interfaces.pgwire.login import Options
from dpsql.interfaces.pgwire.roles import open_roles
from dpsql.interfaces.pgwire.server import check, read_guests, serve, shared_sockets, supervise

__all__ = [
    "Options",
    "check",
    "event_log",
    "open_roles",
    "read_guests",
    "serve",
    "shared_sockets",
    "supervise",
]
