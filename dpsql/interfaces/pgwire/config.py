"""`dpsql serve --config server.yaml`: the server's options as a file.

    releases: [retail.dpsql]
    host: 0.0.0.0
    tls_certificate: server.pem
    tls_key: server.key
    roles: roles.yaml
    metrics: 127.0.0.1:9187

Keys are the options of the command with `_` for `-`. Paths start at the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpsql.catalog.base import Model, Text
from dpsql.catalog.load import LARGEST_FILE, file_bytes, read_model
from dpsql.errors import OperationalError

BEGIN = "begin with `releases: [retail.dpsql]`"
PATHS = ("roles", "password_file", "tls_certificate", "tls_key", "log")
PARAMETERS = {
    "tls_certificate": "certificate", "tls_key": "key", "idle_timeout": "idle", "login_timeout": "login",
}  # fmt: skip
"""Keys that the command's parameters have other names for."""


class ServerFile(Model):
    """The file. Types and bounds are those of the options, which are checked where they are given."""

    releases: tuple[Text, ...] = ()
    host: Text | None = None
    port: Text | None = None
    roles: Text | None = None
    password_file: Text | None = None
    tls_certificate: Text | None = None
    tls_key: Text | None = None
    connections: Text | None = None
    idle_timeout: Text | None = None
    login_timeout: Text | None = None
    memory: Text | None = None
    log: Text | None = None
    log_statements: bool = False
    metrics: Text | None = None
    processes: Text | None = None


def read_config(file: Path) -> dict[str, Any]:
    """The file's values by the names of the command's parameters.

    Raises:
        OperationalError: it cannot be read.
        CatalogError: it is not of that form; names the line.
    """
    try:
        text = file_bytes(file, LARGEST_FILE).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OperationalError(f"cannot read the options of {file}", hint=BEGIN) from error
    values = read_model(text, str(file), ServerFile, BEGIN).model_dump(exclude_none=True)
    for name in PATHS:
        if name in values:
            values[name] = str(file.parent / values[name])
    values["releases"] = [str(file.parent / release) for release in values["releases"]]
    return {PARAMETERS.get(name, name): value for name, value in values.items()}
