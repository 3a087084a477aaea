"""Plans, decoding, the collector; and reports and spools that mean harm: none stops a collection or counts twice."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
import pytest

from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import Row, decode, read_plan, respond, to_json
from dpsql.client.entropy import system_entropy
from dpsql.client.plan import Plan
from dpsql.errors import CatalogError, DataError
from dpsql.local.collector import CollectionManifest, add_spool, close_collection, decode_reports
from dpsql.local.estimate import axis_table
from dpsql.local.files import open_state
from dpsql.local.forecast import predict
from dpsql.local.mechanisms.blue import range_workload
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedGrid, PlannedMeasure, build_plan
from dpsql.local.simulate import simulate_reports
from dpsql.local.tallies import RespondentRows, kind_of
from tests.local_plans import InsecureTestEntropy

KEY = b"k" * 32


def design(**changes: object) -> CollectionDesign:
    base = CollectionDesign(
        "test", Fraction(1), 10_000, (PlannedAxis("age", 25, 25), PlannedAxis("place", 5, 0)),
        measures=(PlannedMeasure("minutes", 0, 120),), together=((0, 1),), tau=2, row_weighting="none",
        row_share=Fraction(1, 10), joint=(PlannedGrid("hot", (0, 1), Fraction(1, 5)),),
    )  # fmt: skip
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def plan_of(**changes: object) -> Plan:
    return read_plan(build_plan(design(**changes)))


def some_people(count: int, seed: int = 1) -> RespondentRows:
    rng = np.random.default_rng(seed)
    first = np.concatenate([[0], np.cumsum(rng.integers(0, 4, size=count))])
    rows = int(first[-1])
    leaves = np.stack([rng.integers(0, 25, rows), rng.integers(0, 5, rows)], axis=1)
    return RespondentRows(first, leaves, rng.integers(0, 121, size=(rows, 1)))


def reports_of(plan: Plan, count: int, seed: int = 1) -> list[bytes]:
    return simulate_reports(plan, some_people(count, seed), np.random.default_rng(seed))


def spool(path: Path, reports: list[bytes | None], tokens: list[str] | None = None) -> Path:
    rows = [(None if r is None else r.hex(), tokens[i] if tokens else None) for i, r in enumerate(reports)]
    connection = duckdb.connect()
    connection.execute("CREATE TABLE spool (report VARCHAR, token VARCHAR)")
    connection.executemany("INSERT INTO spool VALUES (?, ?)", rows)
    columns = "from_hex(report) AS report" + (", token" if tokens else "")
    connection.execute(f"COPY (SELECT {columns} FROM spool) TO '{path}' (FORMAT parquet)")
    return path


def test_a_plan_is_canonical_and_reads_back() -> None:
    raw = build_plan(design())
    assert json.dumps(json.loads(raw), sort_keys=True, separators=(",", ":")).encode() == raw
    plan = read_plan(raw)
    assert {v.oracle for v in plan.views} == {"GRR", "OUE"}
    assert plan.views[-1].kind == "rows_bit"


def test_shares_of_groups_are_equal_and_rows_get_their_part() -> None:
    plan = plan_of(row_share=Fraction(1, 10))
    assert sum(v.share for v in plan.views) == pytest.approx(1_000_000, rel=1e-4)
    assert plan.views[-1].share == 100_000


def test_an_ordered_axis_without_measures_also_gets_square_wave() -> None:
    assert [v.kind for v in plan_of(measures=()).views].count("wave") == 1


@pytest.mark.parametrize(
    "changes", [{"axes": ()}, {"row_weighting": "x"}, {"measures": (PlannedMeasure("m", 3, 3),)}]
)
def test_designs_that_cannot_be_collected(changes: dict[str, object]) -> None:
    with pytest.raises(CatalogError):
        build_plan(design(**changes))


def test_predictions_name_axes_and_pairs_and_shrink_with_people() -> None:
    few, many = predict(plan_of(), 10_000), predict(plan_of(), 1_000_000)
    assert [p.question for p in few] == ["a range of age", "a range of place", "a grid cell of age and place"]
    assert all(9 < a.error / b.error < 11 for a, b in zip(few, many, strict=True))


@pytest.mark.parametrize("leaves", [25, 64])
def test_ranges_of_the_plan_that_ships_err_as_predicted(leaves: int) -> None:
    people, rng, workload = 20_000, np.random.default_rng(leaves), range_workload(leaves)
    axis = PlannedAxis("age", leaves, leaves)
    plan = read_plan(build_plan(CollectionDesign("test", Fraction(1), people, (axis,), rows_floor=1)))
    (predicted,) = predict(plan, people)
    errors = []
    for _ in range(60):
        said = rng.integers(0, leaves, people)
        off = axis_table(simulate_tallies(plan, one_row_each(said[:, None]), rng), 0).counts.shares
        off = off - np.bincount(said, minlength=leaves) / people
        errors.append(off @ workload @ off)
    assert 0.75 < np.mean(errors) / predicted.error**2 < 1.3


def test_simulated_bytes_are_all_accepted_and_agree_with_real_clients() -> None:
    plan = plan_of()
    found = decode_reports(plan, reports_of(plan, 500), np.zeros(500, dtype=np.uint8))
    assert (found.collection.accepted, +found.rejected) == (500, Counter())
    entropy = InsecureTestEntropy(b"real")
    rows = [Row((3, 4), (120,)), Row((24, 0), (0,))]
    real = [respond(plan, rows[: i % 3], entropy) for i in range(200)]
    assert decode_reports(plan, real, np.zeros(200, dtype=np.uint8)).collection.accepted == 200


def test_tallies_in_law_have_the_mean_of_tallied_reports() -> None:
    plan, people = plan_of(), some_people(4000)
    rng = np.random.default_rng(2)
    drawn = [
        [t.support.sum() for t in decode_reports(plan, simulate_reports(plan, people, rng),
        np.zeros(4000, np.uint8)).collection.tallies] for _ in range(6)
    ]  # fmt: skip
    inlaw = [[t.support.sum() for t in simulate_tallies(plan, people, rng).tallies] for _ in range(6)]
    first, second = np.mean(drawn, axis=0), np.mean(inlaw, axis=0)
    assert np.all(np.abs(first - second) < 6 * np.sqrt(first + 30))


def test_a_state_on_disk_goes_on_where_it_stopped(tmp_path: Path) -> None:
    plan, other = plan_of(), plan_of(tau=1)
    path = spool(tmp_path / "a.parquet", list(reports_of(plan, 50)))
    for expected in (50, 0):
        state = open_state(plan, tmp_path / "state.duckdb", KEY)
        assert add_spool(state, plan, path, KEY).accepted == expected
        assert close_collection(state, plan)[1].accepted == 50
        state.close()
    with pytest.raises(DataError, match="another plan"):
        open_state(other, tmp_path / "state.duckdb", KEY)


NO_AMOUNT = np.zeros((0, 1), np.int64)


def counted(plan: Plan, *paths: Path) -> CollectionManifest:
    state = open_state(plan)
    for path in paths:
        add_spool(state, plan, path, KEY)
    return close_collection(state, plan)[1]


@pytest.mark.parametrize(
    "extra",
    [{"token": "\ud800"}, {"token": "a", "epoch": 10**12}, {"token": "a", "epoch": -(10**12)}, {"epoch": 10**40},
     {"token": "a", "epoch": True}, {"token": ["a"]}, {"token": {}}, {"token": 1.5}, {"view": 10**4000},
     {"plan": "\ud800"}, {"payload": None}, {"oracle": {}}, {"oracle": []}, {"report": [1]}],
)  # fmt: skip
def test_one_hostile_line_costs_itself_alone(tmp_path: Path, extra: dict[str, object]) -> None:
    plan = plan_of()
    lines = [to_json(decode(report)) for report in reports_of(plan, 20)]
    (tmp_path / "a.jsonl").write_text(
        "\n".join([*lines[:10], json.dumps(json.loads(lines[0]) | extra), *lines[10:]])
    )
    found = counted(plan, tmp_path / "a.jsonl")
    assert (found.accepted, found.rejected) == (20, {"not a JSON report of version 1": 1})


@pytest.mark.parametrize(
    "line", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff\xfe", b"1e999999", b"NaN", b"9" * 100_000]
)
def test_lines_that_are_no_json_object(tmp_path: Path, line: bytes) -> None:
    plan = plan_of()
    (tmp_path / "a.jsonl").write_bytes(line + b"\n" + to_json(decode(reports_of(plan, 1)[0])).encode())
    found = counted(plan, tmp_path / "a.jsonl")
    assert (found.accepted, found.rejected) == (1, {"not a JSON report of version 1": 1})


@pytest.mark.parametrize("tokens", [False, True])
def test_a_spool_that_grows_counts_each_line_once(tmp_path: Path, tokens: bool) -> None:
    plan, path = plan_of(), tmp_path / "reports.jsonl"
    lines = [json.loads(to_json(decode(report))) for report in reports_of(plan, 30)]
    texts = [json.dumps({**line, "token": str(i)} if tokens else line) for i, line in enumerate(lines)]
    state = open_state(plan, tmp_path / "state.duckdb", KEY)
    seen = []
    for upto in (10, 10, 17, 30):
        path.write_text("".join(f"{text}\n" for text in texts[:upto]))
        seen.append(add_spool(state, plan, path, KEY).reports)
    collection, manifest = close_collection(state, plan)
    assert seen == [10, 10, 7, 13]
    assert (manifest.accepted, manifest.reports, manifest.rejected) == (30, 30, {})
    assert sum(t.total for t in collection.tallies) == 30


def test_a_spool_read_while_its_last_line_is_written(tmp_path: Path) -> None:
    plan, path = plan_of(), tmp_path / "reports.jsonl"
    texts = [to_json(decode(report)) for report in reports_of(plan, 4)]
    state = open_state(plan)
    for text in ("\n".join(texts[:2]) + "\n" + texts[2][:20], "\n".join(texts[:3]), "\n".join(texts)):
        path.write_text(text)
        add_spool(state, plan, path, KEY)
    assert close_collection(state, plan)[1].accepted == 4


def test_another_file_that_begins_alike_is_counted_whole(tmp_path: Path) -> None:
    plan = plan_of()
    texts = [to_json(decode(report)) for report in reports_of(plan, 6)]
    (tmp_path / "a.jsonl").write_text("\n".join(texts[:3]))
    (tmp_path / "b.jsonl").write_text("\n".join([texts[1], texts[0], *texts[3:]]))
    assert counted(plan, tmp_path / "a.jsonl", tmp_path / "b.jsonl").accepted == 8


def test_simulated_people_without_a_row_draw_as_devices_do() -> None:
    plan = plan_of(tau=1, rows_floor=1, row_weighting="none", row_share=Fraction(0), joint=())
    rng, nobody = (
        np.random.default_rng(1),
        RespondentRows(np.zeros(4001, np.int64), np.zeros((0, 2), np.int64), NO_AMOUNT),
    )
    view = next(v for v in plan.views if v.kind == "grid")
    assert not view.empty
    simulated = np.bincount(
        kind_of(view).draw(plan, view, nobody, np.arange(4000), rng), minlength=view.domain
    )
    real = np.bincount(
        [view.asks.draw(plan, view, [], system_entropy) or 0 for _ in range(4000)], minlength=view.domain
    )
    for drawn in (simulated, real):
        expected = 4000 / view.domain
        assert ((drawn - expected) ** 2 / expected).sum() < view.domain + 6 * (2 * view.domain) ** 0.5
