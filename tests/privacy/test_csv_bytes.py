"""CSV files: whatever bytes one person's line holds, other people's rows are read as if it were not there."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.catalog.source import Csv
from dpsql.errors import SourceError
from dpsql.publishing.draft import draft_from_source
from dpsql.sources import RawSide, open_sources
from dpsql.sources.csv import LONGEST, blocks_of_lines, parse_lines

HEADER = b"sale,person,note"
OTHERS = tuple(b'%d,%d,"said ""hi"", left"' % (i, i % 40) if i % 3 else b"%d,%d,it's" % (i, i % 40) for i in range(24))

HOSTILE = (
    b"7,7,\"it's \"\"Ann's\"\"\"", b'7,7,"open', b'7,"7,open', b'"', b'""', b'7,7,"a"b', b'7,7,a"b', b"7,7,'", b"7,7",
    b"7,7,7,7", b"7;7;7", b"7\t7\t7", b"7|7|7", b"\0", b"7,7,\0", b"7,7,\xff", b"7,7,\xe2\x82", b"\xed\xa0\x80", b"\r",
    b"7,7,a\rb", b"7,7,a\r", b"\r\r", b"\xef\xbb\xbf7,7,x", b"7,7," + b"z" * (2 * LONGEST), b"#7,7,c", b"7,7,\\", b"\\",
    b'7,7,"\\"', b"sale,person,note", b"\x1f\x01\x02", b"7,7,\xc2\x85", b"7,7,\xe2\x80\xa8", b"   ", b",,", b"NULL",
)  # fmt: skip


def read(folder: Path, lines: list[bytes], **dialect: object) -> tuple[Counter[tuple[str | None, ...]], int]:
    (folder / "t.csv").write_bytes(b"\n".join([HEADER, *lines]) + b"\n")
    raw = open_sources("csv", folder, {"t": "t.csv"}, csv=Csv(**dialect))  # type: ignore[arg-type]
    try:
        return Counter(raw.connection.execute("SELECT * FROM raw.t").fetchall()), raw.left_out.get("t", 0)
    finally:
        raw.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Counter[tuple[str | None, ...]]:
    rows, left_out = read(tmp_path_factory.mktemp("alone"), list(OTHERS))
    assert left_out == 0 and sum(rows.values()) == len(OTHERS)
    return rows


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_line_is_one_row_or_none(
    line: bytes, alone: Counter[tuple[str | None, ...]], tmp_path: Path
) -> None:
    rows, left_out = read(tmp_path, [line, *OTHERS])
    assert not alone - rows
    assert sum((rows - alone).values()) + left_out <= 1


def test_random_bytes_in_a_line_change_rows_of_that_line_alone() -> None:
    """L1 over unit: row, M = 1: as many rows more or fewer as lines were written, and none of another line."""
    rng = random.Random(5)
    marks = [bytes([i]) for i in range(256) if i != 10] + [b'"', b",", b"'", b"\r", b"\\", b"\0", b"\xff"] * 20
    flat = parse_lines(OTHERS, 3, Csv()).flat
    alone = Counter(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
    for _ in range(400):
        line = bytearray(rng.choice(OTHERS))
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(line) + 1)
            line[at : at + rng.randrange(3)] = rng.choice(marks)
        place = rng.randrange(len(OTHERS) + 1)
        data = b"\n".join([*OTHERS[:place], bytes(line), *OTHERS[place:]])
        blocks = blocks_of_lines(io.BytesIO(data), rng.choice((1, 7, 64, 4096)))
        rows: Counter[tuple[str, ...]] = Counter()
        for lines in blocks:
            flat = parse_lines(lines, 3, Csv()).flat
            rows.update(zip(flat[::3], flat[1::3], flat[2::3], strict=True))
        assert not alone - rows
        assert sum((rows - alone).values()) <= 1


def test_random_bytes_through_the_engine(alone: Counter[tuple[str | None, ...]], tmp_path: Path) -> None:
    rng = random.Random(6)
    for _ in range(15):
        line = bytes(rng.choices(b'7,,""\'\\\r\0\xff\xc3\xa9 a', k=rng.randrange(1, 14)))
        place = rng.randrange(len(OTHERS) + 1)
        rows, left_out = read(tmp_path, [*OTHERS[:place], line, *OTHERS[place:]])
        assert not alone - rows
        assert sum((rows - alone).values()) + left_out <= 1


@pytest.mark.parametrize("dialect", [
    {"delimiter": ";"}, {"delimiter": "\t"}, {"escape": "\\"}, {"quote": "'", "escape": "'"}, {"encoding": "latin-1"},
    {"encoding": "cp1252"}, {"null": "NULL"},
])  # fmt: skip
def test_every_dialect_is_row_local(dialect: dict[str, str], tmp_path: Path) -> None:
    mark = dialect.get("delimiter", ",").encode()
    others = [mark.join((b"%d" % i, b"%d" % i, b"x")) for i in range(9)]
    header = HEADER.replace(b",", mark)
    for line in (b'7;7;"open', b"7,7,'open", b"7,7,\\", b"7,7,\x81", b'7,"\\', b"7\t7\tNULL"):
        (tmp_path / "t.csv").write_bytes(b"\n".join([header, *others[:5], line, *others[5:]]))
        raw = open_sources("csv", tmp_path, {"t": "t.csv"}, csv=Csv(**dialect))  # type: ignore[arg-type]
        rows = raw.connection.execute("SELECT * FROM raw.t").fetchall()
        raw.close()
        assert {(str(i), str(i), "x") for i in range(9)} <= set(rows)
        assert len(rows) <= 10


def test_values_come_back_as_they_were_written(tmp_path: Path) -> None:
    lines = [b'1,"a, ""b""",', b'2,"x\ry",""', b'3,5" disk,\xc3\xa9\r', b"", b"4,'q',\xe2\x80\xa8"]
    rows, left_out = read(tmp_path, lines)
    assert left_out == 0
    assert set(rows) == {
        ("1", 'a, "b"', None), ("2", "x\ry", None), ("3", '5" disk', "é"), ("4", "'q'", "\u2028"),
    }  # fmt: skip
    escaped, _ = read(tmp_path, [b'1,"a \\"b\\\\",-'], escape="\\", null="-")
    assert set(escaped) == {("1", 'a "b\\', None)}


def test_no_type_is_guessed(tmp_path: Path) -> None:
    rows, _ = read(tmp_path, [b"00007,1e3,2025-01-01", b"true,NaN, 5"])
    assert set(rows) == {("00007", "1e3", "2025-01-01"), ("true", "NaN", " 5")}


def test_names_of_a_file_without_a_header_are_declared(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf1,2\n3,4")
    raw = open_sources("csv", tmp_path, {"t": "t.csv"}, csv=Csv(columns={"t": ("a", "b")}))
    assert raw.connection.execute("SELECT a, b FROM raw.t ORDER BY a").fetchall() == [("1", "2"), ("3", "4")]
    raw.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "t.csv").write_bytes(HEADER + b'\n1,1,x\nSECRET,"open\n')
    yield tmp_path


def test_a_public_line_that_is_no_row_is_an_error_without_its_text(files: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_sources("csv", files, {"t": "t.csv"}, public={"t"})
    assert "source.tables.t" in str(caught.value) and "t.csv" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("first", [b"", b"a,,b", b"a,A", b'SECRET"x",\xff', b"a\0b", b"a" * (2 * LONGEST)])
def test_a_first_line_that_is_no_header_is_an_error_without_its_text(first: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(first + b"\n1,2\n")
    with pytest.raises(SourceError) as caught:
        open_sources("csv", tmp_path, {"t": "t.csv"})
    assert "SECRET" not in str(caught.value)


def test_an_engine_that_guesses_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that looks at the rows to find the dialect moves more than one row: such a test would fail."""

    def guessed(connection: RawSide, target: str, file: Path, dialect: Csv, names: object = ()) -> int:
        sql = f"CREATE TABLE {target} AS SELECT * FROM read_csv('{file}', all_varchar = true, header = true)"
        connection.execute(sql)  # type: ignore[attr-defined]
        return 0

    monkeypatch.setattr("dpsql.sources.load_csv", guessed)
    base, _ = read(tmp_path, list(OTHERS))
    changes = [
        sum((base - rows).values()) + sum((rows - base).values())
        for rows, _ in (read(tmp_path, [line, *OTHERS]) for line in HOSTILE[:2])
    ]
    assert max(changes) > 1


def test_a_draft_takes_the_delimiter_from_header_lines_and_declares_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"sale;price\n" + b"1;2,5,5,5,5,5\n" * 3 + b'"open;x\n')
    draft_from_source(tmp_path, tmp_path / "draft.yaml", "shop")
    text = (tmp_path / "draft.yaml").read_text()
    assert 'csv: {"delimiter": ";", "quote": "\\"", "escape": "\\"", "encoding": "utf-8", "null": ""}' in text
    assert "price" in text
