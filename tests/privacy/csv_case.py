"""CSV bytes of one line against everybody else's rows: hostile lines, random mutants, and the reader that guesses.

    worst_change(folder, cases)     largest L1 change of the rows over all cases, divided by M = 1 (`unit: row`)

A case is a file with one line more than the file it is compared with. All cases are tables of one source.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import duckdb

from dpsql.catalog.source import CSV, Csv
from dpsql.engines import open_sources
from dpsql.engines.file_formats import LONGEST
from dpsql.row_expressions import literal

HEADER = b"sale,person,note"
OTHERS = tuple(
    b'%d,%d,"said ""hi"", left"' % (i, i % 40) if i % 3 else b"%d,%d,it's" % (i, i % 40) for i in range(24)
)
HOSTILE = (
    b"7,7,\"it's \"\"Ann's\"\"\"", b'7,7,"open', b'7,"7,open', b'"', b'""', b'7,7,"a"b', b'7,7,a"b', b"7,7,'", b"7,7",
    b"7,7,7,7", b"7;7;7", b"7\t7\t7", b"7|7|7", b"\0", b"7,7,\0", b"7,7,\xff", b"7,7,\xe2\x82", b"\xed\xa0\x80", b"\r",
    b"7,7,a\rb", b"7,7,a\r", b"\r\r", b"\xef\xbb\xbf7,7,x", b"7,7," + b"z" * (2 * LONGEST), b"#7,7,c", b"7,7,\\", b"\\",
    b'7,7,"\\"', b"sale,person,note", b"\x1f\x01\x02", b"7,7,\xc2\x85", b"7,7,\xe2\x80\xa8", b"   ", b",,", b"NULL",
)  # fmt: skip
MARKS = (*(bytes([i]) for i in range(256) if i != 10), *(b'"', b",", b"'", b"\r", b"\\", b"\0", b"\xff") * 20)


def mutants(number: int, seed: int) -> list[bytes]:
    """Lines with a few bytes changed, put in or taken out; none gets a newline."""
    rng, lines = random.Random(seed), []
    for _ in range(number):
        line = bytearray(rng.choice(OTHERS))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(line) + 1)
            line[at : at + rng.randrange(3)] = rng.choice(MARKS)
        lines.append(bytes(line))
    return lines


def worst_change(folder: Path, cases: Iterable[bytes], seed: int = 1) -> float:
    """The largest number of rows that one line adds or takes away, its own row included, over M = 1."""
    rng, tables = random.Random(seed), {"alone": "alone.csv"}
    (folder / "alone.csv").write_bytes(b"\n".join([HEADER, *OTHERS]) + b"\n")
    for i, line in enumerate(cases):
        place = rng.randrange(len(OTHERS) + 1)
        tables[f"case{i}"] = f"case{i}.csv"
        (folder / f"case{i}.csv").write_bytes(
            b"\n".join([HEADER, *OTHERS[:place], line, *OTHERS[place:]]) + b"\n"
        )
    with closing(open_sources(CSV, folder, tables)) as raw:
        rows = {
            table: Counter(raw.connection.execute(f"SELECT * FROM raw.{table}").fetchall())
            for table in tables
        }
    alone = rows.pop("alone")
    return float(
        max(sum((alone - other).values()) + sum((other - alone).values()) for other in rows.values())
    )


def guessing_reader(
    connection: duckdb.DuckDBPyConnection, target: str, file: Path, dialect: Csv, names: object = ()
) -> int:
    """The planted bug, in place of `dpsql.engines.load_csv`: the engine finds the dialect in the rows."""
    read = f"read_csv({literal(str(file))}, all_varchar = true, header = true)"
    connection.execute(f"CREATE TABLE {target} AS SELECT * FROM {read}")
    return 0


def forgiving_reader(
    connection: duckdb.DuckDBPyConnection, target: str, file: Path, dialect: Csv, names: object = ()
) -> int:
    """Another planted bug: a fixed dialect, but the engine decides where a row ends and what an error takes along."""
    header = file.read_bytes().split(b"\n", 1)[0].decode().split(",")
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in header)
    read = (
        f"read_csv({literal(str(file))}, auto_detect = false, header = true, delim = ',', quote = '\"', escape = '\"', "
        f"columns = {{{columns}}}, ignore_errors = true)"
    )
    connection.execute(f"CREATE TABLE {target} AS SELECT * FROM {read}")
    return 0
