"""CSV files: whatever bytes one person's line holds, other people's rows are read as if it were not there."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpsql.catalog.source import CSV, Csv
from dpsql.curator.draft import draft_from_source, leave_open
from dpsql.engines import open_sources
from dpsql.engines.file_formats import LONGEST, blocks_of_lines, parse_lines
from dpsql.engines.schema_union import TableUse
from dpsql.errors import SourceError
from tests.privacy.csv_case import (
    HEADER,
    HOSTILE,
    OTHERS,
    forgiving_reader,
    guessing_reader,
    mutants,
    worst_change,
)


def read(folder: Path, lines: list[bytes], **dialect: object) -> tuple[Counter[tuple[str | None, ...]], int]:
    (folder / "t.csv").write_bytes(b"\n".join([HEADER, *lines]) + b"\n")
    raw = open_sources(CSV, folder, {"t": "t.csv"}, csv=Csv(**dialect))  # type: ignore[arg-type]
    try:
        return Counter(raw.connection.execute("SELECT * FROM raw.t").fetchall()), raw.left_out.get("t", 0)
    finally:
        raw.close()


def test_a_line_changes_at_most_one_row(tmp_path: Path) -> None:
    assert worst_change(tmp_path, (*HOSTILE, *mutants(60, seed=6))) <= 1


@pytest.mark.parametrize("bug", [guessing_reader, forgiving_reader])
def test_readers_that_look_past_the_line_are_caught(bug, tmp_path, monkeypatch):
    monkeypatch.setattr("dpsql.engines.load_csv", bug)
    assert worst_change(tmp_path, HOSTILE[:2]) > 1


def test_blocks_of_any_size_give_the_same_rows() -> None:
    rng = random.Random(5)
    for line in mutants(400, seed=5):
        place = rng.randrange(len(OTHERS) + 1)
        lines = [*OTHERS[:place], line, *OTHERS[place:]]
        blocks = blocks_of_lines(io.BytesIO(b"\n".join(lines)), rng.choice((1, 7, 64, 4096)))
        cut = [field for block in blocks for field in parse_lines(block, 3, Csv())[0]]
        own = parse_lines([line], 3, Csv())
        before, after = (parse_lines(part, 3, Csv())[0] for part in (OTHERS[:place], OTHERS[place:]))
        assert cut == before + own[0] + after
        assert len(own[0]) in (0, 3)


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
        raw = open_sources(CSV, tmp_path, {"t": "t.csv"}, csv=Csv(**dialect))  # type: ignore[arg-type]
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
    raw = open_sources(CSV, tmp_path, {"t": "t.csv"}, csv=Csv(columns={"t": ("a", "b")}))
    assert raw.connection.execute("SELECT a, b FROM raw.t ORDER BY a").fetchall() == [("1", "2"), ("3", "4")]
    raw.close()


def test_a_first_column_without_a_name_holds_row_numbers(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b'"","a"\n"1",5\n"2",6')
    raw = open_sources(CSV, tmp_path, {"t": "t.csv"})
    assert raw.connection.execute("SELECT a, row_number FROM raw.t ORDER BY a").fetchall() == [
        ("5", "1"),
        ("6", "2"),
    ]
    raw.close()


@pytest.fixture
def files(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "t.csv").write_bytes(HEADER + b'\n1,1,x\nSECRET,"open\n')
    yield tmp_path


def test_a_public_line_that_is_no_row_is_an_error_without_its_text(files: Path) -> None:
    with pytest.raises(SourceError) as caught:
        open_sources(CSV, files, {"t": "t.csv"}, uses={"t": TableUse(public=True)})
    assert "source.tables.t" in str(caught.value) and "t.csv" in str(caught.value)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("first", [b"", b"a,,b", b"a,A", b'SECRET"x",\xff', b"a\0b", b"a" * (2 * LONGEST)])
def test_a_first_line_that_is_no_header_is_an_error_without_its_text(first: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(first + b"\n1,2\n")
    with pytest.raises(SourceError) as caught:
        open_sources(CSV, tmp_path, {"t": "t.csv"})
    assert "SECRET" not in str(caught.value)


def test_a_draft_takes_the_delimiter_from_header_lines_and_declares_it(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"sale;price\n" + b"1;2,5,5,5,5,5\n" * 3 + b'"open;x\n')
    draft_from_source(tmp_path, tmp_path / "draft.yaml", "shop", leave_open)
    text = (tmp_path / "draft.yaml").read_text()
    assert 'csv: {"delimiter": ";", "quote": "\\"", "escape": "\\"", "encoding": "utf-8", "null": ""}' in text
    assert "price" in text
