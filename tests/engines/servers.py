"""Servers that tests publish by: a PostgreSQL of an ordinary user in a folder of its own, and one Spark session.

Both end with the test run. PostgreSQL listens on a Unix socket in its folder, and on 127.0.0.1 where a test gives a
port; its super-user has a password, so that a test can look for it in messages and files.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest

DATABASE = "shop"
USER = "curator"


class Server(NamedTuple):
    """A running PostgreSQL.

    Args:
        folder: where its socket is.
        password: of its super-user `curator`.
        port: on 127.0.0.1, and of its socket; None for the default port of the socket alone.
    """

    folder: Path
    password: str
    port: int | None = None

    @property
    def dsn(self) -> str:
        """A connection string with the password in it."""
        port = "" if self.port is None else f" port={self.port}"
        return f"host={self.folder}{port} dbname={DATABASE} user={USER} password={self.password}"


def postgres_programs() -> Path | None:
    """The folder of `initdb` and `postgres`, or None where there is no server on this machine."""
    found = shutil.which("initdb")
    if found is not None and Path(found).resolve().with_name("postgres").exists():
        return Path(found).resolve().parent
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return debian[-1].parent if debian else None


def _ordinary() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as `nobody`."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


@contextmanager
def postgres_or_skip() -> Iterator[Server]:
    """A PostgreSQL of this run; its test is skipped where there is no server, or no psycopg."""
    programs = postgres_programs()
    if programs is None or find_spec("psycopg") is None:
        pytest.skip("there is no PostgreSQL server or no psycopg here")
    with running_postgres(programs) as server:
        yield server


@contextmanager
def running_postgres(programs: Path, port: int | None = None) -> Iterator[Server]:
    """A PostgreSQL in a temporary folder, stopped and removed at the end; on 127.0.0.1 too where a port is given."""
    who, password = _ordinary(), secrets.token_hex(12)
    with tempfile.TemporaryDirectory(prefix="dpsql-pg-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "password").write_text(password)
        if who:
            os.chown(folder, who["user"], who["group"])
            os.chown(folder / "password", who["user"], who["group"])
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", USER, "-A", "scram-sha-256", "-E", "UTF8",
             "--locale=C.UTF-8", "--no-sync", f"--pwfile={folder / 'password'}"],
            check=True, capture_output=True, cwd=folder, env=environment, **who,
        )  # fmt: skip
        settings = {
            "unix_socket_directories": name, "listen_addresses": "", "fsync": "off", "shared_buffers": "128MB",
            "max_connections": "20", "log_min_messages": "panic",
        }  # fmt: skip
        if port is not None:
            settings |= {"listen_addresses": "127.0.0.1", "port": str(port)}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        process = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", *options],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **who,
        )  # fmt: skip
        try:
            server = Server(folder, password, port)
            _create_database(server, process)
            yield server
        finally:
            process.terminate()
            process.wait(30)


def new_schema(name: str) -> str:
    """SQL of an empty schema. Where a worker takes tests of a module in two parts, its fixtures are made twice."""
    return f"DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name}"


def _create_database(server: Server, process: subprocess.Popen[bytes]) -> None:
    import time

    import psycopg

    for _ in range(300):
        if process.poll() is not None:
            raise RuntimeError(f"postgres ended with status {process.returncode}")
        try:
            with psycopg.connect(
                server.dsn.replace(f"dbname={DATABASE}", "dbname=postgres"), autocommit=True
            ) as open_:
                open_.execute(f"CREATE DATABASE {DATABASE}")
                return
        except psycopg.OperationalError:
            time.sleep(0.1)
    raise RuntimeError("postgres did not answer within 30 seconds")


def clickhouse_or_skip(folder: Path) -> Path:
    """A folder with an empty chdb database; its test is skipped where there is no chdb."""
    if find_spec("chdb") is None:
        pytest.skip("there is no chdb here")
    run_clickhouse(folder, "CREATE DATABASE shop")
    return folder


def run_clickhouse(folder: Path, *statements: str) -> None:
    """Run statements as the owner of a chdb database."""
    import chdb

    with closing(chdb.connect(str(folder))) as connection:
        for statement in statements:
            connection.query(statement)


def copied(folder: Path, database: str, files: Mapping[str, Path]) -> None:
    """Parquet files as tables of a database, each column of the type that ClickHouse gives it."""
    made = [
        f"CREATE TABLE {database}.{table} ENGINE = MergeTree ORDER BY () AS SELECT * FROM file('{file}', Parquet)"
        for table, file in files.items()
    ]
    run_clickhouse(folder, f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}", *made)


@contextmanager
def running_spark() -> Iterator[Any]:
    """A local Spark session in ANSI mode, with a warehouse of its own and nothing on standard error."""
    from pyspark.sql import SparkSession

    with tempfile.TemporaryDirectory(prefix="dpsql-spark-", ignore_cleanup_errors=True) as folder:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["SPARK_LOCAL_DIRS"] = folder
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={folder}",
            "spark.driver.memory": "2g",
        }
        builder = SparkSession.builder.master("local[2]").appName("dpsql tests")
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
