"""The clients that run here, each as a command; a client whose driver is absent is left out.

| needs | where it is looked for |
|---|---|
| Python drivers | `$WIRE_PYTHON`, else this Python |
| node's drivers | `$WIRE_NODE`, a folder with `node_modules` |
| PostgreSQL's JDBC driver | `$WIRE_JDBC`, else Debian's jar |
| psqlODBC | `$WIRE_ODBC`, else Debian's library |
| R, Perl, PHP | the interpreters of the PATH: `PROGRAMS` |
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent
PYTHON = os.environ.get("WIRE_PYTHON", sys.executable)
NODE = Path(os.environ.get("WIRE_NODE", FOLDER))
JDBC = Path(os.environ.get("WIRE_JDBC", "/usr/share/java/postgresql.jar"))
ODBC = Path(os.environ.get("WIRE_ODBC", "/usr/lib/x86_64-linux-gnu/odbc/psqlodbcw.so"))
SECONDS = 180

PYTHON_DRIVERS = {
    "psycopg3": "psycopg", "psycopg2": "psycopg2", "asyncpg": "asyncpg", "pg8000": "pg8000",
    "adbc": "adbc_driver_postgresql", "connectorx": "connectorx", "sqlalchemy-psycopg2": "psycopg2",
    "sqlalchemy-psycopg3": "psycopg", "sqlalchemy-pg8000": "pg8000", "sqlalchemy-asyncpg": "asyncpg",
    "pgcli": "pgcli", "odbc": "pyodbc",
}  # fmt: skip
"""Driver -> the module that it needs."""
NODE_DRIVERS = {"node-pg": "pg", "postgres-js": "postgres", "sequelize": "sequelize", "typeorm": "typeorm"}
PROGRAMS = {
    "dbplyr": (
        "Rscript",
        "dbplyr.R",
        "stopifnot(requireNamespace('dbplyr'), requireNamespace('RPostgreSQL'))",
    ),
    "perl-dbd-pg": ("perl", "drivers.pl", "use DBD::Pg;"),
    "php-pdo": ("php", "drivers.php", "exit(extension_loaded('pdo_pgsql') ? 0 : 1);"),
}
"""Client -> its interpreter, its program, and what fails where the driver is absent."""
PSQL = ("\\d", "\\dt", "\\dt+", "\\d sales", "\\d+ sales", "\\d product", "\\d+ shop", "\\l", "\\dn", "\\dn+", "\\du",
        "\\df", "\\dv", "\\di", "\\dT", "\\dp", "\\db", "\\dx", "\\ds", "\\dm", "\\dd", "\\dC", "\\dO",
        "\\conninfo", "\\encoding", "COPY (SELECT 1) TO STDOUT",
        "BEGIN; DECLARE c CURSOR FOR SELECT 1; FETCH 1 FROM c; CLOSE c; COMMIT",
        "PREPARE p AS SELECT COUNT(*) FROM sales WHERE product_id = $1; EXECUTE p(1); DEALLOCATE p",
        "EXPLAIN SELECT COUNT(*) FROM sales", "SHOW ALL")  # fmt: skip


class Outcome(NamedTuple):
    """A step of a client, and what went wrong."""

    driver: str
    step: str
    error: str


def _has_module(name: str) -> bool:
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    return subprocess.run([PYTHON, "-c", look, name], check=False, cwd="/").returncode == 0


def _runs(interpreter: str, code: str) -> bool:
    flag = "-r" if interpreter == "php" else "-e"
    path = shutil.which(interpreter)
    return (
        path is not None
        and not subprocess.run([path, flag, code], capture_output=True, check=False).returncode
    )


@cache
def clients() -> list[str]:
    """The clients whose drivers are installed."""
    names = ["psql"] if shutil.which("psql") else []
    names += [driver for driver, module in PYTHON_DRIVERS.items() if _has_module(module)]
    if not ODBC.exists() and "odbc" in names:
        names.remove("odbc")
    if shutil.which("node"):
        names += [name for name, module in NODE_DRIVERS.items() if (NODE / "node_modules" / module).exists()]
    names += [name for name, (interpreter, _, driver) in PROGRAMS.items() if _runs(interpreter, driver)]
    return [*names, *(["jdbc"] if shutil.which("java") and JDBC.exists() else [])]


def run_client(name: str, port: int, slow: str, counts: str = "float8") -> list[Outcome]:
    """Let a client go through its steps.

    Args:
        name: of the client.
        port: of the server on 127.0.0.1.
        slow: a statement that runs until it is stopped.
        counts: PostgreSQL's type of COUNT(*).
    """
    environment = os.environ | {
        "SLOW": slow,
        "COUNTS": counts,
        "ODBC": str(ODBC),
        "NODE_PATH": str(NODE / "node_modules"),
    }
    if name == "psql":
        return [_psql(command, port, environment) for command in PSQL]
    if name in NODE_DRIVERS:
        command = ["node", str(FOLDER / "drivers.js"), name, str(port)]
    elif name in PROGRAMS:
        command = [PROGRAMS[name][0], str(FOLDER / PROGRAMS[name][1]), str(port)]
    elif name == "jdbc":
        command = ["java", "-cp", str(JDBC), str(FOLDER / "Metadata.java"), str(port), slow]
    else:
        command = [PYTHON, str(FOLDER / "drivers.py"), name, str(port)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, env=environment, cwd="/", check=False
    )
    outcomes = [
        Outcome(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith('{"driver"')
    ]
    if not outcomes or (done.returncode and not any(outcome.error for outcome in outcomes)):
        outcomes.append(Outcome(name, "run", done.stderr[-600:] or "no step"))
    return outcomes


def _psql(command: str, port: int, environment: Mapping[str, str]) -> Outcome:
    address = ["-X", "-h", "127.0.0.1", "-p", str(port), "-U", "psql", "shop"]
    done = subprocess.run(
        ["psql", *address, "-v", "ON_ERROR_STOP=1", "-c", command],
        capture_output=True, text=True, timeout=60, env=environment, check=False,
    )  # fmt: skip
    wrong = done.returncode != 0 or "ERROR" in done.stderr
    return Outcome("psql", command, done.stderr.strip()[:600] or "failed" if wrong else "")
