"""Records what clients ask a PostgreSQL, into `statements.json`.

    PYTHONPATH=. python -m tests.interfaces.wire_zoo.record

Starts a PostgreSQL with the tables of the shop and `log_statement = all`, lets every client that is installed go
through its steps, and takes the statements from the server's log: text, parameters, and the client's name, which is the
user that it logs in as. Then every statement is asked once more for the columns and the rows that PostgreSQL gives.
"""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.engines.servers import _ordinary, postgres_programs
from tests.interfaces.wire_client import free_port
from tests.interfaces.wire_zoo.measure import OIDS_OF_STAR
from tests.interfaces.wire_zoo.programs import FOLDER, JDBC, NODE, NODE_DRIVERS, PYTHON, clients, run_client
from tests.interfaces.wire_zoo.wire import Asker

STATEMENTS = FOLDER / "statements.json"
TEMPLATES = FOLDER / "templates.sql"
LOGGED = re.compile(r"^(?:statement|execute [^:]*): (.*)$", re.DOTALL)
PARAMETER = re.compile(r"\$(\d+) = (NULL|'(?:[^']|'')*')")
STAR = """
CREATE TABLE public.customer (customer_id bigint PRIMARY KEY, age bigint NOT NULL, region text);
CREATE TABLE public.product (product_id integer PRIMARY KEY, category text NOT NULL);
CREATE TABLE public.sales (customer_id bigint NOT NULL REFERENCES public.customer, product_id integer NOT NULL
    REFERENCES public.product, amount float8 NOT NULL, sold_on date NOT NULL);
INSERT INTO public.customer SELECT i, 20 + i % 40, CASE WHEN i % 2 = 0 THEN 'east' ELSE 'west' END
    FROM generate_series(0, 99) i;
INSERT INTO public.product VALUES (0, 'tea'), (1, 'coffee'), (2, 'cake');
INSERT INTO public.sales SELECT i % 100, i % 3, i % 90, date '2025-01-01' + i % 365 FROM generate_series(0, 999) i;
CREATE TABLE public.shop AS SELECT sales.*, age, region, category FROM public.sales
    JOIN public.customer USING (customer_id) JOIN public.product USING (product_id);
ANALYZE;
"""
OURS = re.compile(
    r"^(BEGIN|COMMIT|ROLLBACK|SELECT (\$1|1$|pg_sleep|CAST\(\$1)|DATE )|FROM (shop|sales|nothing)\b", re.I
)
"""Statements of the steps themselves, which say nothing of a driver; of a driver's own we keep all."""


class Statement(NamedTuple):
    """A recorded statement.

    Args:
        client: who sent it.
        text: with `$n` for parameters.
        values: of parameters as text, None for NULL.
    """

    client: str
    text: str
    values: tuple[str | None, ...]


@contextmanager
def postgres() -> Iterator[tuple[int, Path]]:
    """A PostgreSQL with the star: its port, and the folder of its logs."""
    programs = postgres_programs()
    assert programs is not None, "needs PostgreSQL"
    account = _ordinary()
    with tempfile.TemporaryDirectory(prefix="dpsql-zoo-", ignore_cleanup_errors=True) as name:
        folder, port = Path(name), free_port()
        if account:
            subprocess.run(["chown", "nobody", name], check=True)
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "dpsql", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
             "--no-sync"], check=True, capture_output=True, cwd=folder, **account,
        )  # fmt: skip
        settings = {
            "unix_socket_directories": name, "listen_addresses": "127.0.0.1", "port": str(port), "fsync": "off",
            "log_statement": "all", "logging_collector": "on", "log_destination": "csvlog", "log_rotation_size": "0",
            "log_directory": str(folder / "log"), "log_parameter_max_length": "-1",
        }  # fmt: skip
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *options], cwd=folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, **account,
        ) as process:  # fmt: skip
            try:
                ready = [programs / "pg_isready", "-h", "127.0.0.1", "-p", str(port), "-t", "20"]
                for _ in range(100):
                    if subprocess.run(ready, capture_output=True, check=False).returncode == 0:
                        break
                psql = [
                    programs / "psql",
                    "-X",
                    "-q",
                    "-h",
                    "127.0.0.1",
                    "-p",
                    str(port),
                    "-U",
                    "dpsql",
                    "-v",
                    "ON_ERROR_STOP=1",
                ]
                subprocess.run([*psql, "postgres", "-c", "CREATE DATABASE shop"], check=True)
                subprocess.run([*psql, "shop"], input=STAR, text=True, check=True)
                roles = ";".join(
                    f'CREATE ROLE "{client}" LOGIN IN ROLE pg_read_all_data' for client in clients()
                )
                subprocess.run([*psql, "shop", "-c", roles], check=True)
                yield port, folder / "log"
            finally:
                process.send_signal(signal.SIGINT)  # fast: whoever is still there is sent away
                process.wait(30)


def logged(folder: Path) -> list[Statement]:
    """The statements of a log, each once for a client."""
    statements: dict[tuple[str, str], Statement] = {}
    for file in sorted(folder.glob("*.csv")):
        with file.open(newline="") as lines:
            for row in csv.reader(lines):
                user, message, detail = row[1], row[13], row[14]
                match = LOGGED.match(message)
                if match is None or user not in clients() or OURS.search(match[1].strip()):
                    continue
                values = [
                    None if v == "NULL" else v[1:-1].replace("''", "'") for _, v in PARAMETER.findall(detail)
                ]
                text = match[1].strip()
                statements.setdefault(
                    (user, re.sub(r"\d{3,}|'[^']*'", "?", text)), Statement(user, text, tuple(values))
                )
    return list(statements.values())


def templates() -> list[Statement]:
    """The documented statements of tools that do not run here: `-- tool: NAME` begins one, a blank line ends it."""
    statements = []
    for block in re.split(r"\n\s*\n", TEMPLATES.read_text()):
        match = re.match(r"\s*-- tool: ([^\n]+)\n(.*)", block, re.DOTALL)
        if match and match[2].strip():
            statements.append(Statement(match[1].strip(), match[2].strip().rstrip(";"), ()))
    return statements


def versions() -> dict[str, str]:
    """The versions of the clients that were recorded."""
    look = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    names = ["psycopg", "psycopg2-binary", "asyncpg", "pg8000", "adbc-driver-postgresql", "connectorx", "SQLAlchemy",
             "pgcli", "pyodbc", "pandas"]  # fmt: skip
    found = json.loads(
        subprocess.run([PYTHON, "-c", look, *names], capture_output=True, text=True, check=True).stdout
    )
    for module in NODE_DRIVERS.values():
        package = NODE / "node_modules" / module / "package.json"
        found[f"node {module}"] = json.loads(package.read_text())["version"]
    with zipfile.ZipFile(JDBC) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    found["pgjdbc"] = re.search(r"^Implementation-Version: (\S+)", manifest, re.MULTILINE)[1]  # type: ignore[index]
    found["psql"] = subprocess.run(
        ["psql", "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found["psqlODBC"] = "13.02.0000"
    return found


def main() -> None:
    """Record, and write the fixture."""
    with postgres() as (port, log):
        for client in clients():
            for outcome in run_client(client, port, "SELECT pg_sleep(20)", "int8"):
                if outcome.error:
                    print(f"{client}: {outcome.step}: {outcome.error}", file=sys.stderr)
        recorded = [*logged(log), *templates()]
        asker = Asker(port, "dpsql")
        entries: list[dict[str, Any]] = []
        star = {str(name): str(oid) for name, oid in asker.ask(OIDS_OF_STAR).rows}
        for statement in recorded:
            asker.ask("ROLLBACK", ())
            given = asker.ask(statement.text, statement.values)
            if given.error:
                print(
                    f"{statement.client}: PostgreSQL refuses {statement.text[:90]!r}: {given.error}",
                    file=sys.stderr,
                )
                continue
            rows = [list(row) for row in given.rows]
            entries.append({
                "client": statement.client, "text": statement.text, "values": list(statement.values),
                "columns": [list(column) for column in given.columns], "rows": rows[:40], "count": len(rows),
            })  # fmt: skip
    lines = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
    head = json.dumps({"server": "PostgreSQL 15", **versions()}, indent=1)
    STATEMENTS.write_text(
        f'{{"versions": {head},\n"oids": {json.dumps(star)},\n"statements": [\n{lines}\n]}}\n'
    )
    print(len(entries), "statements")


if __name__ == "__main__":
    main()
