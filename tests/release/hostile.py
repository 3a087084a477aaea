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

from tests.statements import sections

QUERIES = (
    "SELECT COUNT(*) FROM sales",
    "SELECT region, SUM(amount) AS s, AVG(amount) AS a FROM sales JOIN customer USING (customer_id) GROUP BY region",
    "SELECT sold_on, category, COUNT(*) AS n FROM sales JOIN product USING (product_id)"
    " JOIN category USING (category_id) GROUP BY sold_on, category LIMIT 5",
    "SELECT age, COUNT(*) AS n FROM customer WHERE age < 30 GROUP BY age",
)
SECONDS = 30.0
"""A reader that takes longer hangs."""


FILE = sections(Path(__file__).with_name("hostile.sql"))
STATEMENTS = {name: text for text, name in FILE["statements"]} | {
    "views that double": "CREATE VIEW v0 AS SELECT 1 AS a; "
    + "; ".join(f"CREATE VIEW v{i + 1} AS SELECT x.a FROM v{i} AS x, v{i} AS y" for i in range(8)),
    "ten thousand tables": "; ".join(f"CREATE TABLE t{i} (a INTEGER)" for i in range(2000)),
    "a comment": "COMMENT ON TABLE node IS 'x\x1b]0;owned\x07'",
    "a table with control characters": 'CREATE TABLE "\x1b[2J" (a INTEGER)',
}


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
