"""Hostile releases: what somebody may hand out as one, made from a good one. Each is a name and what to do to a copy.

`STATEMENTS` change a copy by SQL, as its owner can; `ENTRIES` change the text of one entry of `meta`; `BYTES` change or
replace the file. `asked` does to a file what a reader does, in a process of its own that is killed if it hangs.
"""

from __future__ import annotations

import gc
import gzip
import json
import multiprocessing
import os
import sqlite3
import time
import traceback
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

QUERIES = (
    "SELECT COUNT(*) FROM sales",
    "SELECT region, SUM(amount) AS s, AVG(amount) AS a FROM sales JOIN customer USING (customer_id) GROUP BY region",
    "SELECT sold_on, category, COUNT(*) AS n FROM sales JOIN product USING (product_id)"
    " JOIN category USING (category_id) GROUP BY sold_on, category LIMIT 5",
    "SELECT age, COUNT(*) AS n FROM customer WHERE age < 30 GROUP BY age",
)
SECONDS = 30.0
"""A reader that takes longer hangs."""

_META_AWAY = "ALTER TABLE meta RENAME TO meta_before; "
_NEVER = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT"
_NEW = "CREATE TABLE {0}_new AS SELECT {1} FROM {0}; DROP TABLE {0}; ALTER TABLE {0}_new RENAME TO {0}"

STATEMENTS = {
    "meta is a view": _META_AWAY + "CREATE VIEW meta AS FROM meta_before",
    "meta is a view that never ends": _META_AWAY
    + f"CREATE VIEW meta AS {_NEVER} 'format' AS key, i::VARCHAR AS value FROM r",
    "numbers are a view that never ends": "ALTER TABLE node_combination_0 RENAME TO n; "
    "CREATE VIEW node_combination_0 AS SELECT a.* FROM n AS a, range(1000000000) AS b, range(1000000000) AS c",
    "an axis is a view": "ALTER TABLE axis_0 RENAME TO a; CREATE VIEW axis_0 AS FROM a",
    "views that double": "CREATE VIEW v0 AS SELECT 1 AS a; "
    + "; ".join(f"CREATE VIEW v{i + 1} AS SELECT x.a FROM v{i} AS x, v{i} AS y" for i in range(8)),
    "a macro sum": "CREATE MACRO sum(x) AS 42",
    "a macro count": "CREATE MACRO count(x) AS 42",
    "a macro strlen": "CREATE MACRO strlen(x) AS 0",
    "a macro unnest": "CREATE MACRO list_value(x) AS 0",
    "a table macro of DuckDB's name": "CREATE MACRO duckdb_views() AS TABLE SELECT 1 AS view_name WHERE false; "
    "CREATE VIEW hidden AS SELECT 1",
    "a macro that never ends": f"CREATE MACRO m() AS TABLE {_NEVER} i FROM r",
    "a sequence": "CREATE SEQUENCE s",
    "a type": "CREATE TYPE mood AS ENUM ('happy')",
    "an index": "CREATE INDEX i ON node_combination_0 (n1)",
    "a schema": "CREATE SCHEMA other",
    "a table elsewhere": "CREATE SCHEMA other; CREATE TABLE other.meta AS FROM meta",
    "a comment": "COMMENT ON TABLE node IS 'x\x1b]0;owned\x07'",
    "a comment on a column": "COMMENT ON COLUMN node.id IS 'alice'",
    "a default": "ALTER TABLE node ALTER COLUMN id SET DEFAULT 7",
    "a computed column": "ALTER TABLE scale ADD COLUMN x INTEGER; DROP TABLE scale; "
    "CREATE TABLE scale (of_table VARCHAR, measure VARCHAR GENERATED ALWAYS AS (of_table))",
    "a check": _META_AWAY + "CREATE TABLE meta (key VARCHAR CHECK (key <> ''), value VARCHAR); "
    "INSERT INTO meta FROM meta_before; DROP TABLE meta_before",
    "a key": _META_AWAY + "CREATE TABLE meta (key VARCHAR PRIMARY KEY, value VARCHAR); "
    "INSERT INTO meta FROM meta_before; DROP TABLE meta_before",
    "an unexpected table": "CREATE TABLE raw AS SELECT 1 AS card",
    "ten thousand tables": "; ".join(f"CREATE TABLE t{i} (a INTEGER)" for i in range(2000)),
    "a table with control characters": 'CREATE TABLE "\x1b[2J" (a INTEGER)',
    "a table too few": "DROP TABLE variance_0",
    "no node table": "DROP TABLE node",
    "a renamed column": "ALTER TABLE node_combination_0 RENAME COLUMN estimate TO guess",
    "columns swapped": _NEW.format("node", "id, axis, parent, level, lo, hi"),
    "estimates are floats": "ALTER TABLE node_combination_0 ALTER COLUMN estimate TYPE DOUBLE",
    "estimates are text": "ALTER TABLE node_combination_0 ALTER COLUMN estimate TYPE VARCHAR",
    "estimates are wide": "ALTER TABLE node_combination_0 ALTER COLUMN estimate TYPE HUGEINT",
    "leaves are wide": "ALTER TABLE axis_0 ALTER COLUMN leaf TYPE BIGINT",
    "leaves are lists": _NEW.format("axis_0", "* REPLACE ([leaf] AS leaf)"),
    "NULL estimates": "UPDATE node_combination_0 SET estimate = NULL",
    "NULL nodes": "UPDATE node_combination_0 SET n1 = NULL",
    "huge estimates": "UPDATE node_combination_0 SET estimate = 9223372036854775807",
    "nodes of no tree": "UPDATE node_combination_0 SET n1 = n1 + 100000",
    "numbers twice": "INSERT INTO node_combination_0 FROM node_combination_0",
    "numbers missing": "DELETE FROM node_combination_0 WHERE n1 > 3",
    "no numbers": "DELETE FROM node_combination_0",
    "NULL leaves": "UPDATE axis_0 SET leaf = NULL",
    "leaves out of range": "UPDATE axis_0 SET leaf = leaf + 1000000",
    "negative leaves": "UPDATE axis_0 SET leaf = -1",
    "NaN weights": "UPDATE axis_0 SET weight = 'NaN'",
    "infinite weights": "UPDATE axis_0 SET weight = 'Infinity'",
    "negative weights": "UPDATE axis_0 SET weight = -1",
    "atoms of no kind": "UPDATE axis_0 SET kind = 77",
    "no atoms": "DELETE FROM axis_0",
    "millions of atoms": "INSERT INTO axis_0 SELECT a.* FROM axis_0 AS a, range(200000)",
    "control characters in labels": "UPDATE axis_1 SET region = region || chr(27) || ']0;owned' || chr(7)",
    "a label of megabytes": "UPDATE axis_1 SET region = repeat('x', 40000000) WHERE atom = 0",
    "a tree upside down": "UPDATE node SET lo = hi, hi = lo",
    "a tree in a ring": "UPDATE node SET parent = id",
    "a tree of other leaves": "UPDATE node SET axis = 1 - axis WHERE axis < 2",
    "a tree in one chain": "DELETE FROM node; INSERT INTO node SELECT 0, i, i - 1, i, 0, 1 FROM range(1000000) AS r(i)",
    "node ids twice": "UPDATE node SET id = 0",
    "NULL nodes of a tree": "UPDATE node SET hi = NULL",
    "no nodes": "DELETE FROM node",
    "NULL variances": "UPDATE variance_0 SET leaf = NULL",
    "NaN variances": "UPDATE variance_0 SET leaf = 'NaN'",
    "no variances": "DELETE FROM variance_0",
    "millions of variances": "INSERT INTO variance_0 SELECT 1 FROM range(40000000)",
    "meta has a key twice": "INSERT INTO meta SELECT key, value FROM meta WHERE key = 'format'",
    "meta has a NULL": "UPDATE meta SET value = NULL WHERE key = 'privacy'",
    "meta lacks a key": "DELETE FROM meta WHERE key = 'privacy'",
    "meta has a key more": "INSERT INTO meta VALUES ('note', '1')",
    "meta is empty": "DELETE FROM meta",
    "meta has a million rows": "INSERT INTO meta SELECT 'k' || i, '1' FROM range(1000000) AS r(i)",
    "meta is enormous": "UPDATE meta SET value = repeat('[', 300000000) WHERE key = 'catalog'",
}  # fmt: skip


def _deep(value: Any) -> str:
    return "[" * 100_000 + "]" * 100_000


def _deeper(value: Any) -> str:
    return '{"a":' * 900 + "1" + "}" * 900


def _changed(path: tuple[Any, ...], new: Any) -> Callable[[Any], str]:
    """An entry with one value replaced."""

    def change(value: Any) -> str:
        inner = value
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = new
        return json.dumps(value)

    return change


def _variance(number: str) -> Callable[[Any], str]:
    """Statistics with one variance factor as JSON's own writers do not write it."""
    plain = _changed((0, "components"), [[[0], "?"]])
    return lambda value: plain(value).replace('"?"', number)


ENTRIES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "meta is no JSON": ("catalog", lambda value: "{nothing"),
    "meta nests too deep to parse": ("catalog", _deep),
    "meta nests deep": ("catalog", _deeper),
    "a number of a million digits": ("format", lambda value: "9" * 1_000_000),
    "a number beyond floats": ("statistics", _variance("1e999")),
    "NaN in meta": ("statistics", _variance("NaN")),
    "a fraction that takes for ever": ("privacy", _changed(("epsilon",), "1e999999999")),
    "a budget that takes for ever": ("statistics", _changed((0, "budget"), "1e999999999")),
    "a fraction over 0": ("privacy", _changed(("epsilon",), "1/0")),
    "another format": ("format", lambda value: "4"),
    "a format with control characters": ("format", lambda value: '"\\u001b]0;owned\\u0007"'),
    "statistics are a text": ("statistics", lambda value: '"none"'),
    "an unknown key inside": ("privacy", _changed(("note",), "alice")),
    "billions of leaves": ("axes", _changed((0, "leaves"), 2**40)),
    "no leaves": ("axes", _changed((0, "leaves"), 0)),
    "another number of leaves": ("axes", _changed((0, "leaves"), 91)),
    "a special leaf elsewhere": ("axes", _changed((0, "other_leaf"), 5000)),
    "an axis of another table": ("axes", _changed((0, "of"), "nowhere")),
    "a column's type as SQL": ("axes", _changed((0, "columns", 0, "type"), "DATE; DROP TABLE meta")),
    "a column's name as SQL": ("axes", _changed((0, "columns", 0, "name"), 'x" FROM meta --')),
    "an axis of no model": ("axes", _changed((0, "model"), 999)),
    "a statistic of no axis": ("statistics", _changed((0, "axes"), [999])),
    "a statistic of one axis twice": ("statistics", _changed((0, "axes"), [0, 0])),
    "a statistic of no model": ("statistics", _changed((0, "models"), [-1])),
    "a statistic of too few models": ("statistics", _changed((0, "models"), [])),
    "statistics with one id": ("statistics", _changed((1, "id"), 0)),
    "parts of no axis": ("statistics", _changed((0, "components"), [[[17], 1.0]])),
    "a variance below 0": ("statistics", _changed((0, "components"), [[[0], -1.0]])),
    "families that err together with themselves": ("covariances", lambda _: "[[[0], [0], [[[], 1.0]]]]"),
    "families of no statistic": ("covariances", lambda _: "[[[0], [999], [[[], 1.0]]]]"),
    "families over no axis": ("covariances", lambda _: "[[[0], [1], [[[77], 1.0]]]]"),
    "no parts": ("statistics", _changed((0, "components"), [])),
    "an unknown reading": ("statistics", _changed((0, "reading"), "eval")),
    "another reading": ("statistics", _changed((0, "reading"), "stack")),
    "a measure of no table": ("statistics", _changed((0, "measure"), "nowhere.nothing")),
    "an enormous centre": ("statistics", _changed((0, "mid"), 10**300)),
    "an impossible scale": ("statistics", _changed((0, "scale"), 10**6)),
    "an unknown model": ("models", _changed((0,), "eval")),
    "a model of groups of groups": ("models", _changed((0,), "grouped " * 2000 + "identity")),
    "no catalog": ("catalog", lambda value: "{}"),
    "a catalog without tables": ("catalog", _changed(("tables",), {})),
    "a catalog with control characters": ("catalog", _changed(("name",), "shop\x1b]0;owned\x07")),
    "a catalog whose epsilon takes for ever": ("catalog", _changed(("privacy", "epsilon"), "1e999999999")),
    "a catalog whose bound takes for ever": (
        "catalog", _changed(("tables", "sales", "columns", "amount", "upper"), "1e999999999"),
    ),
    "a catalog in a ring": (
        "catalog", _changed(("tables", "category", "foreign_keys"), {"category_id": {"references": "product"}}),
    ),
    "a measure that is a program": (
        "catalog", _changed(("tables", "sales", "measures", "revenue", "expr"), "(" * 500 + "1" + ")" * 500),
    ),
}  # fmt: skip


def _pieces(data: bytes) -> dict[str, bytes]:
    """Files that are no releases, by what they are."""
    half = len(data) // 2
    return {
        "an empty file": b"",
        "a hundred bytes": data[:100],
        "half a file": data[:half],
        "all but a block": data[:-4096],
        "a block inverted": data[:half]
        + bytes(255 - one for one in data[half : half + 4096])
        + data[half + 4096 :],
        "random bytes": os.urandom(1 << 16),
        "zeros": bytes(1 << 20),
        "a text": b"SELECT 1;\n" * 100,
        "two files in one": data + data,
        "something at the end": data + b"\x1b]0;owned\x07" * 10,
        "another storage version": data[:12] + (9999).to_bytes(8, "little") + data[20:],
        "a compressed file": gzip.compress(data),
        "an escape sequence": b"\x1b]0;owned\x07" * 1000,
    }


BYTES = tuple(_pieces(bytes(1 << 14)))


def _sqlite(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE meta (key, value)")


def _parquet(path: Path) -> None:
    path.unlink()
    duckdb.connect().execute(f"COPY (SELECT 1 AS key, 2 AS value) TO '{path}' (FORMAT parquet)")


def _zip(path: Path) -> None:
    data = path.read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release", data)


def _empty_database(path: Path) -> None:
    path.unlink()
    duckdb.connect(str(path)).close()


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _log(path: Path) -> None:
    """A write-ahead log that adds a million to every number, beside the untouched file."""
    data = path.read_bytes()
    child = os.fork()
    if child == 0:
        connection = duckdb.connect(str(path))
        connection.execute("SET checkpoint_threshold = '1GB'")
        connection.execute("UPDATE node_combination_0 SET estimate = estimate + 1048576000000")
        os._exit(0)  # as a crash leaves it
    os.waitpid(child, 0)
    path.write_bytes(data)


FILES: dict[str, Callable[[Path], None]] = {
    "an SQLite file": _sqlite, "a Parquet file": _parquet, "an archive": _zip,
    "a database without tables": _empty_database,
    "a pipe": _fifo, "a link to itself": _loop, "a folder": _folder, "a write-ahead log beside it": _log,
}  # fmt: skip


def names() -> list[str]:
    """Every hostile release."""
    return [*STATEMENTS, *ENTRIES, *BYTES, *FILES]


def make(name: str, release: Path, target: Path) -> Path:
    """One hostile release.

    Args:
        name: which, of `names()`.
        release: a good one.
        target: the file to make.
    """
    target.write_bytes(release.read_bytes())
    if name in BYTES:
        target.write_bytes(_pieces(target.read_bytes())[name])
    elif name in FILES:
        FILES[name](target)
    else:
        with duckdb.connect(str(target)) as connection:
            if name in STATEMENTS:
                connection.execute(STATEMENTS[name])
            else:
                key, change = ENTRIES[name]
                ((text,),) = connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchall()
                connection.execute("UPDATE meta SET value = ? WHERE key = ?", [change(json.loads(text)), key])
    return target


class Outcome(NamedTuple):
    """What a reader was told.

    Args:
        how: `answered`, `refused`, `traceback`, `hung` or `died`.
        told: the answers, the error's line, or the traceback.
        seconds: how long it took.
    """

    how: str
    told: Any
    seconds: float


def read_all(path: Path, signer: str | None) -> Any:
    """What readers do with a release: questions with their errors, plans, and the whole check."""
    from dpsql import api
    from dpsql.federation.session import open_session
    from dpsql.interfaces.web.report import report_page

    with closing(open_session([path], insecure=True, require_signature=signer)) as opened:
        answers = []
        for query in QUERIES:
            result = opened.query(query)
            answers.append((result.rows, result.stderr_rows, result.interval_rows(0.95)))
            assert str(result)
            opened.explain(query)
        report_page(opened.releases[0], None)
        api.verify(path, require_signature=signer)
        return answers


def _child(path: Path, signer: str | None, pipe: Any) -> None:
    from dpsql.errors import Error

    try:
        pipe.send(("answered", read_all(path, signer)))
    except Error as error:
        pipe.send(("refused", (type(error).__name__, str(error))))
    except BaseException:  # noqa: BLE001 - what a reader would see as a traceback is what is counted
        pipe.send(("traceback", traceback.format_exc()))
    pipe.close()
    os._exit(0)


def asked(path: Path, signer: str | None = None, seconds: float = SECONDS) -> Outcome:
    """What happens to a reader of a file, in a process of its own.

    Args:
        path: the file.
        signer: the public key that is required; None requires none.
        seconds: until it counts as hanging.
    """
    context, began = multiprocessing.get_context("fork"), time.monotonic()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(path, signer, there))
    gc.freeze()  # the child collects nothing of its parent's: libraries with threads of their own do not survive that
    process.start()
    gc.unfreeze()
    there.close()
    try:
        how, told = here.recv() if here.poll(seconds) else ("hung", "")
    except EOFError:
        how, told = "died", ""
    if process.is_alive() and how == "hung":
        process.kill()
    process.join()
    return Outcome(how, told, time.monotonic() - began)
