"""Where PostgreSQL keeps a table: places that neither another spelling, a rename nor a reload changes.

    postgresql+cluster://<system identifier>/<database oid>/name/<schema>/<name>    stays when a table is made anew
    postgresql+cluster://<system identifier>/<database oid>/table/<oid>             stays when a table is renamed
    postgresql+address://<host>:<port>/<database>/..                                without access to the identifier

The server resolves the name, by its search path and its own rules of case and quotes. A table stands for its partitions
and for tables that inherit from it, a view for the tables that it reads. The system identifier is drawn when a cluster
is made, an oid when a database is: one that was restored from a dump has others, and no engine can know that its people
are the same.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import quote, urlsplit

_CLUSTER, _ADDRESS = "postgresql+cluster", "postgresql+address"

_RELATIONS = """
WITH RECURSIVE reached (oid) AS (
    SELECT CAST(pg_catalog.to_regclass(%s) AS oid)
    UNION
    SELECT below.oid FROM reached CROSS JOIN LATERAL (
        SELECT i.inhrelid AS oid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = reached.oid
        UNION ALL
        SELECT d.refobjid FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_depend AS d
            ON d.objid = r.oid AND d.classid = CAST('pg_catalog.pg_rewrite' AS regclass)
            AND d.refclassid = CAST('pg_catalog.pg_class' AS regclass)
        WHERE r.ev_class = reached.oid AND r.ev_type = '1'
    ) AS below
)
SELECT c.oid, n.nspname, c.relname FROM reached
JOIN pg_catalog.pg_class AS c ON c.oid = reached.oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY c.oid
"""
"""A rule of the type '1' is the SELECT of a view."""

_DATABASE = """
SELECT d.oid, d.datname, pg_catalog.current_setting('port'),
    pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()
"""
_IDENTIFIER = "SELECT system_identifier FROM pg_catalog.pg_control_system()"


def table_places(connection: Any, name: str) -> tuple[str, ...]:
    """The places of a table, and of the tables that it stands for.

    Args:
        connection: an open psycopg connection.
        name: the table as SQL writes it.

    Returns:
        Two places for each relation; none where there is no such table.

    **Privacy**: reads the server's catalogs alone.
    """
    relations = connection.execute(_RELATIONS, (name,)).fetchall()
    database = _database_place(connection)
    return tuple(
        f"{database}/{place}"
        for oid, schema, relation in relations
        for place in (f"name/{_quoted(schema)}/{_quoted(relation)}", f"table/{oid}")
    )


def is_by_address(place: str) -> bool:
    """Whether a place names its server by address, since its identifier could not be read."""
    return urlsplit(place).scheme == _ADDRESS


def _database_place(connection: Any) -> str:
    oid, name, port, readable = connection.execute(_DATABASE).fetchone()
    if readable:
        (identifier,) = connection.execute(_IDENTIFIER).fetchone()
        return f"{_CLUSTER}://{identifier}/{oid}"
    return f"{_ADDRESS}://{_server_host(connection.info)}:{port}/{_quoted(name)}"


def _server_host(connection_info: Any) -> str:
    """The server's resolved address; this computer's name where it runs here, by whichever socket or interface."""
    address = str(connection_info.hostaddr)
    if not address or _is_local(address):
        return _quoted(socket.gethostname())
    return f"[{address}]" if ":" in address else address


def _is_local(address: str) -> bool:
    """Whether an address is one of this computer's: only those can be bound."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    kind = socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(parsed), 0))
        except OSError:
            return parsed.is_loopback
    return True


def _quoted(name: object) -> str:
    return quote(str(name), safe="")
