"""The collector counts what a reader of one report at a time counts: every oracle, every format, each integer."""

from __future__ import annotations

import base64
import csv
import json
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.local.simulated import one_row_each
from dpsql.client.device import HEADER, MAGIC
from dpsql.client.oracles import bucket, read_varint
from dpsql.client.plan import Plan, View
from dpsql.errors import DataError, MachineFault, OperationalError
from dpsql.local import collector
from dpsql.local import files as spools
from dpsql.local.collector import SpoolCount, add_spool, close_collection, decode_reports
from dpsql.local.files import open_state, spool_files
from dpsql.local.plan import PlannedAxis
from dpsql.local.simulate import simulate_reports
from tests.local.test_collector import plan_of

pytestmark = pytest.mark.long

KEY = b"k" * 32
AXES = (PlannedAxis("age", 20, 20), PlannedAxis("zip", 2100, 0))
PLAN = plan_of(axes=AXES, together=(), joint=(), measures=(), epsilon=Fraction(1), wave_share=Fraction(1, 4))


@dataclass
class Reference:
    """What one report at a time brings: support per view and item, and rejections by reason."""

    plan: Plan
    support: dict[int, Counter[int]] = field(default_factory=dict)
    rejected: Counter[str] = field(default_factory=Counter)
    accepted: int = 0

    def add(self, report: bytes) -> None:
        reason, view, items = self.read(report)
        self.rejected[reason] += reason != ""
        if not reason:
            self.accepted += 1
            self.support.setdefault(view, Counter()).update(items)

    def read(self, report: bytes) -> tuple[str, int, list[int]]:
        if len(report) <= HEADER:
            return "too short", 0, []
        if report[:2] != MAGIC:
            return "not a report of version 1", 0, []
        if report[2:10] != self.plan.hash:
            return "another plan", 0, []
        number = int.from_bytes(report[10:12], "big")
        if number >= len(self.plan.views):
            return "no such view", 0, []
        view = self.plan.views[number]
        if report[12] != view.perturbs.code:
            return "not the view's oracle", 0, []
        reason, items = READERS[view.oracle](view, report[HEADER:])
        return reason, number, items


def number_below(limit: int, raw: bytes) -> tuple[str, int]:
    if not 1 <= len(raw) <= 4:
        return "payload length", 0
    try:
        value, size = read_varint(raw)
    except DataError:
        return "value out of range", 0
    return ("" if size == len(raw) and value < limit else "value out of range"), value


def one_item(view: View, raw: bytes) -> tuple[str, list[int]]:
    reason, value = number_below(view.domain + 2 * view.extra, raw)
    return reason, [value]


def bits(view: View, raw: bytes) -> tuple[str, list[int]]:
    if len(raw) != -(-view.domain // 8):
        return "payload length", []
    ones = [i for i in range(8 * len(raw)) if raw[i // 8] >> (7 - i % 8) & 1]
    return ("padding bits" if ones and ones[-1] >= view.domain else ""), ones


def hashed(view: View, raw: bytes) -> tuple[str, list[int]]:
    reason, held = number_below(view.extra, raw[2:])
    seed = int.from_bytes(raw[:2], "big")
    return reason, [] if reason else [i for i in range(view.domain) if bucket(seed, i, view.extra) == held]


READERS = {"GRR": one_item, "WAVE": one_item, "OUE": bits, "OLH": hashed}


def sound_reports(count: int) -> list[bytes]:
    rng = np.random.default_rng(7)
    leaves = np.stack([rng.integers(0, 20, count), rng.integers(0, 2100, count)], axis=1)
    return simulate_reports(PLAN, one_row_each(leaves), rng)


SOUND = sound_reports(300)


def test_every_oracle_is_asked() -> None:
    assert {view.oracle for view in PLAN.views} == {"GRR", "OUE", "OLH", "WAVE"}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A sound report with some bytes changed, added or cut, or no report at all."""
    report = bytearray(draw(st.sampled_from(SOUND)))
    for _ in range(draw(st.integers(0, 2))):
        report[draw(st.integers(0, len(report) - 1))] = draw(st.integers(0, 255))
    tail = draw(st.sampled_from([b"", b"", b"", b"\0", b"\x80", b"\x80\0", b"\xff" * 70]))
    return bytes(report)[: draw(st.integers(0, len(report) + 20))] + tail


def counted(paths: list[Path], key: bytes = KEY) -> tuple[dict[int, Counter[int]], Counter[str], int]:
    state = open_state(PLAN)
    for path in paths:
        add_spool(state, PLAN, path, key)
    collection, manifest = close_collection(state, PLAN)
    support = {}
    for number, tally in enumerate(collection.tallies):
        if tally.total:
            held = tally.support.sum(axis=0)
            support[number] = Counter({i: int(held[i]) for i in np.nonzero(held)[0].tolist()})
    assert manifest.reports == manifest.accepted + sum(manifest.rejected.values())
    assert manifest.accepted == sum(tally.total for tally in collection.tallies)
    return support, Counter(manifest.rejected), manifest.accepted


def wanted(reports: list[bytes], more: dict[str, int]) -> tuple[dict[int, Counter[int]], Counter[str], int]:
    reference = Reference(PLAN)
    for report in reports:
        reference.add(report)
    support = {view: +items for view, items in reference.support.items()}
    return support, +(reference.rejected + Counter(more)), reference.accepted


def one_a_token(rows: list[tuple[bytes, str | None, int]]) -> tuple[list[bytes], int]:
    """The reports that count, and how many did not because their token came again."""
    held: dict[tuple[str, int], bytes] = {}
    for report, token, epoch in rows:
        if token is not None:
            held[token, epoch] = min(report, held.get((token, epoch), report))
    given = sum(token is not None for _, token, _ in rows)
    return [*(r for r, token, _ in rows if token is None), *held.values()], given - len(held)


ROWS = st.lists(
    st.tuples(
        damaged(),
        st.one_of(st.none(), st.sampled_from(["", "a", "b", "ü", "0", "a" * 300])),
        st.integers(-2, 2),
    ),
    min_size=1, max_size=60,
)  # fmt: skip


def parquet(path: Path, rows: list[tuple[bytes | None, str | None, int | None]]) -> Path:
    reports, tokens, epochs = (list(column) for column in zip(*rows, strict=True))
    columns = {"report": pa.array(reports, pa.binary()), "token": tokens, "epoch": epochs}
    pq.write_table(pa.table(columns), path)
    return path


@settings(max_examples=settings.default.max_examples // 2)
@given(rows=ROWS, absent=st.integers(0, 3))
def test_parquet_counts_as_one_report_at_a_time(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bytes, str | None, int]], absent: int
) -> None:
    path = parquet(tmp_path_factory.mktemp("p") / "a.parquet", [*rows, *[(None, "x", 0)] * absent])
    kept, repeated = one_a_token(rows)
    assert counted([path]) == wanted(kept, {"no report": absent, "repeated token": repeated})


@settings(max_examples=settings.default.max_examples // 4)
@given(rows=ROWS)
def test_csv_counts_as_parquet(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[bytes, str | None, int]]
) -> None:
    path = tmp_path_factory.mktemp("c") / "a.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "report", "more", "token"])
        writer.writerows([epoch, report.hex().upper(), "x,y", token] for report, token, epoch in rows)
        file.write("1,zz,,\n1,4c3,,\n1.5,4c31,,\n4c31\n")
    empty = sum(not report for report, _, _ in rows)
    told = [(r, token or None, epoch) for r, token, epoch in rows if r]
    kept, repeated = one_a_token(told)
    assert counted([path]) == wanted(kept, {"not a CSV report": empty + 4, "repeated token": repeated})


def test_every_oracle_s_sound_reports_count_in_all_formats_and_portions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same through a folder, in portions of few rows, and as JSON with canonical and other lines."""
    monkeypatch.setattr(collector, "LARGEST_ROWS", 7)
    monkeypatch.setattr(spools, "BLOCK", 1000)
    codes = {view.perturbs.code: view.oracle for view in PLAN.views}
    lines = []
    for i, report in enumerate(SOUND):
        fields = {"report": 1, "plan": PLAN.hash.hex(), "view": int.from_bytes(report[10:12], "big")}
        fields |= {"oracle": codes[report[12]], "payload": report[HEADER:].hex()}
        if i % 3:
            fields |= {"token": f"t{i % 50}"} | ({"epoch": i % 2} if i % 4 else {})
        keys = sorted(fields) if i % 5 == 0 else list(fields)
        lines.append(json.dumps({key: fields[key] for key in keys}))
    rows = [
        (report, f"t{i % 50}" if i % 3 else None, i % 2 if i % 3 and i % 4 else 0)
        for i, report in enumerate(SOUND)
    ]
    kept, repeated = one_a_token(rows)
    expected = wanted(kept, {"repeated token": repeated})
    (tmp_path / "json" / "deep").mkdir(parents=True)
    ends = ["\r\n", "\n", "\r"]
    text = "".join(line + ends[i % 3] for i, line in enumerate(lines))
    (tmp_path / "json" / "deep" / "a.jsonl").write_bytes(text.encode())
    assert counted(spool_files([tmp_path / "json"])) == expected
    assert counted([parquet(tmp_path / "a.parquet", rows)]) == expected
    split = [parquet(tmp_path / f"{i}.parquet", rows[i::4]) for i in range(4)]
    assert counted(split) == counted([*reversed(split), split[0]]) == expected
    plain = [(report, None, None) for report in SOUND]
    assert counted([parquet(tmp_path / "plain.parquet", plain)]) == wanted(SOUND, {})
    found = decode_reports(PLAN, SOUND, np.arange(len(SOUND), dtype=np.uint8) % 4)
    assert found.collection.accepted == len(SOUND)


def test_folds_are_even_and_do_not_follow_the_reports(tmp_path: Path) -> None:
    """All reports are alike, so any imbalance would be the folds' own."""
    one = next(report for report in SOUND if report[12] == 1)
    columns = {"report": pa.array([one] * 8000, pa.binary())}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    columns["token"] = pa.array([base64.b64encode(i.to_bytes(8, "big")).decode() for i in range(8000)])
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    for name in ("a", "b"):
        state = open_state(PLAN)
        add_spool(state, PLAN, tmp_path / f"{name}.parquet", KEY)
        collection, _ = close_collection(state, PLAN)
        reports = sum(tally.reports for tally in collection.tallies)
        assert ((reports - 2000) ** 2 / 2000).sum() < 25, reports.tolist()


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.list_(pa.binary())])
def test_a_report_column_of_another_type_is_none(tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"report": pa.nulls(5, kind)}), tmp_path / "a.parquet")
    assert counted([tmp_path / "a.parquet"]) == ({}, Counter({"no report column of bytes": 5}), 0)


@pytest.mark.parametrize(
    ("token", "epoch"), [(pa.int64(), pa.string()), (pa.binary(), pa.float64()), (pa.float64(), pa.bool_())]
)
def test_tokens_and_epochs_of_other_types(tmp_path: Path, token: pa.DataType, epoch: pa.DataType) -> None:
    tokens = (
        pa.array([1, 1, 2]).cast(pa.string()).cast(token)
        if token != pa.binary()
        else pa.array([b"1", b"1", b"2"])
    )
    epochs = pa.array(["1", "1", "x"]) if epoch == pa.string() else pa.array([1, 1, 0]).cast(epoch)
    columns = {"report": pa.array([SOUND[0]] * 3, pa.binary()), "token": tokens, "epoch": epochs}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert counted([tmp_path / "a.parquet"])[1:] == (Counter({"repeated token": 1}), 2)


def test_a_file_that_is_damaged_in_the_middle_counts_nothing(tmp_path: Path) -> None:
    rows = [(report, str(i), 0) for i, report in enumerate(SOUND * 20)]
    whole = parquet(tmp_path / "a.parquet", rows).read_bytes()
    (tmp_path / "b.parquet").write_bytes(whole[:2000] + bytes(3000) + whole[5000:])
    assert counted([tmp_path / "b.parquet"]) == ({}, Counter({"unreadable file": 1}), 0)


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="reading the first byte there is an I/O error"
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_disk_that_does_not_read_is_no_damaged_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/proc/self/mem")
    with pytest.raises(MachineFault, match=f"cannot read the spool {name} .Input/output error."):
        counted([tmp_path / name])


def test_a_fault_that_goes_by_loses_no_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = parquet(tmp_path / "a.parquet", [(report, None, None) for report in SOUND[:9]])
    state = open_state(PLAN)

    def fails(*_: object) -> None:
        raise duckdb.IOException("could not read")

    with monkeypatch.context() as patched, pytest.raises(MachineFault, match="could not be counted"):
        patched.setattr(collector, "_count_plain", fails)
        add_spool(state, PLAN, file, KEY)
    assert add_spool(state, PLAN, file, KEY) == SpoolCount(9, 9, False)


def test_names_of_files_are_no_patterns_and_no_columns(tmp_path: Path) -> None:
    folder = tmp_path / "token=x" / "o'clock"
    folder.mkdir(parents=True)
    rows: list[tuple[bytes | None, str | None, int | None]] = [(report, None, None) for report in SOUND[:9]]
    parquet(folder / "1.parquet", rows[:4])
    assert counted([parquet(folder / "[1].parquet", rows)])[2] == 9
    assert counted(spool_files([tmp_path]))[2] == 13


def test_folders_without_spools_are_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("x")
    with pytest.raises(OperationalError, match="contains no spool"):
        spool_files([tmp_path])


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n3,4\n", "\xff\n1\n", '"a\n1\n'])
def test_csv_without_a_report_column(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode("latin-1"))
    assert counted([tmp_path / "a.csv"])[2] == 0


def test_a_line_longer_than_any_report_is_one_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spools, "BLOCK", 64)
    monkeypatch.setattr(spools, "LONGEST_LINE", 400)
    (tmp_path / "a.jsonl").write_bytes(b"9" * 10_000 + b"\n[]\n" + b"{" * 999)
    assert counted([tmp_path / "a.jsonl"]) == ({}, Counter({"not a JSON report of version 1": 3}), 0)


def test_what_is_added_to_a_file_while_it_is_counted_counts_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, state = tmp_path / "a.jsonl", open_state(PLAN)
    from dpsql.client import decode, to_json

    lines = [to_json(decode(report)) + "\n" for report in SOUND[:30]]
    path.write_text("".join(lines[:20]))
    hashed_file = collector.counted_file

    def grows(file: Path) -> spools.CountedFile:
        found = hashed_file(file)
        with path.open("a") as more:
            more.write("".join(lines[20:]))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(collector, "counted_file", grows)
        assert add_spool(state, PLAN, path, KEY).reports == 20
    assert add_spool(state, PLAN, path, KEY).reports == 10
    assert close_collection(state, PLAN)[1].accepted == 30
