"""Plans, decoding, the collector: strict, idempotent, indifferent to the order of files."""

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
from dpsql.client import Row, decode, encode, read_plan, respond, to_json
from dpsql.client.plan import Plan
from dpsql.errors import CatalogError, DataError, OperationalError
from dpsql.local.collector import add_spool, close_collection, decode_reports
from dpsql.local.estimate import axis_table
from dpsql.local.files import open_state
from dpsql.local.forecast import predict, range_variances
from dpsql.local.mechanisms.blue import range_workload
from dpsql.local.plan import CollectionDesign, PlannedAxis, PlannedGrid, PlannedMeasure, build_plan
from dpsql.local.simulate import simulate_reports
from dpsql.local.spools import counted_file
from dpsql.local.tallies import RespondentRows
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


def collected(plan: Plan, *paths: Path) -> tuple[list[list[int]], dict[str, int], int]:
    state = open_state(plan)
    for path in paths:
        add_spool(state, plan, path, KEY)
    tallies, manifest = close_collection(state, plan)
    return [t.support.sum(axis=0).tolist() for t in tallies], manifest.rejected, manifest.accepted


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
    (predicted,) = range_variances(plan, people)
    errors = []
    for _ in range(60):
        said = rng.integers(0, leaves, people)
        off = axis_table(plan, simulate_tallies(plan, one_row_each(said[:, None]), rng), 0).counts.shares
        off = off - np.bincount(said, minlength=leaves) / people
        errors.append(off @ workload @ off)
    assert 0.75 < np.mean(errors) / predicted < 1.3


def test_simulated_bytes_are_all_accepted_and_agree_with_real_clients() -> None:
    plan = plan_of()
    found = decode_reports(plan, reports_of(plan, 500), np.zeros(500, dtype=np.uint8))
    assert (found.accepted, +found.rejected) == (500, Counter())
    entropy = InsecureTestEntropy(b"real")
    rows = [Row((3, 4), (120,)), Row((24, 0), (0,))]
    real = [respond(plan, rows[: i % 3], entropy) for i in range(200)]
    assert decode_reports(plan, real, np.zeros(200, dtype=np.uint8)).accepted == 200


def test_tallies_in_law_have_the_mean_of_tallied_reports() -> None:
    plan, people = plan_of(), some_people(4000)
    rng = np.random.default_rng(2)
    drawn = [
        [t.support.sum() for t in decode_reports(plan, simulate_reports(plan, people, rng),
        np.zeros(4000, np.uint8)).tallies] for _ in range(6)
    ]  # fmt: skip
    inlaw = [[t.support.sum() for t in simulate_tallies(plan, people, rng)] for _ in range(6)]
    first, second = np.mean(drawn, axis=0), np.mean(inlaw, axis=0)
    assert np.all(np.abs(first - second) < 6 * np.sqrt(first + 30))


def test_a_replay_adds_nothing_and_order_does_not_matter(tmp_path: Path) -> None:
    plan = plan_of()
    paths = [spool(tmp_path / f"{i}.parquet", list(reports_of(plan, 60, i))) for i in range(3)]
    forwards = collected(plan, *paths)
    assert forwards == collected(plan, *reversed(paths)) == collected(plan, *paths, *paths)
    assert forwards[2] == 180


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


def test_one_report_a_token_whatever_the_order(tmp_path: Path) -> None:
    plan = plan_of()
    reports = list(reports_of(plan, 40))
    tokens = [str(i % 25) for i in range(40)]
    first = spool(tmp_path / "a.parquet", reports[:20], tokens[:20])
    second = spool(tmp_path / "b.parquet", reports[20:], tokens[20:])
    forwards = collected(plan, first, second)
    assert forwards == collected(plan, second, first)
    assert forwards[1:] == ({"repeated token": 15}, 25)


def test_json_lines_are_the_twin(tmp_path: Path) -> None:
    plan = plan_of()
    reports = reports_of(plan, 30)
    lines = [to_json(decode(r)) for r in reports]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "{", '{"report":1}', '"x"']))
    tallies, rejected, accepted = collected(plan, tmp_path / "a.jsonl")
    assert (rejected, accepted) == ({"not a JSON report of version 1": 3}, 30)
    assert tallies == collected(plan, spool(tmp_path / "a.parquet", list(reports)))[0]


def test_json_lines_with_tokens(tmp_path: Path) -> None:
    plan = plan_of()
    lines = [json.dumps({**json.loads(to_json(decode(r))), "token": "same"}) for r in reports_of(plan, 5)]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, lines[0].replace('"same"', "7")]))
    assert collected(plan, tmp_path / "a.jsonl")[1:] == (
        {"not a JSON report of version 1": 1, "repeated token": 4}, 1,
    )  # fmt: skip


def test_files_that_are_no_spools(tmp_path: Path) -> None:
    plan = plan_of()
    (tmp_path / "a.parquet").write_bytes(b"not parquet")
    duckdb.execute(f"COPY (SELECT 'x' AS report FROM range(3)) TO '{tmp_path}/b.parquet' (FORMAT parquet)")
    some = [*reports_of(plan, 4), None]
    found = collected(
        plan, tmp_path / "a.parquet", tmp_path / "b.parquet", spool(tmp_path / "c.parquet", some)
    )
    assert found[1:] == ({"no report": 1, "no report column of bytes": 3, "unreadable file": 1}, 4)
    with pytest.raises(OperationalError):
        counted_file(tmp_path / "absent.parquet")


def broken(rng: np.random.Generator, plan: Plan, report: bytes) -> tuple[bytes, set[str]]:
    """A malformed copy of a report, and the reasons that may be given for it."""
    kind = int(rng.integers(0, 8))
    view = plan.views[int.from_bytes(report[10:12], "big")]
    if kind == 0:
        return report[: int(rng.integers(0, 14))][:13], {"too short"}
    if kind == 1:
        return bytes([report[0] ^ int(rng.integers(1, 256))]) + report[1:], {"not a report of version 1"}
    if kind == 2:
        at = int(rng.integers(2, 10))
        return report[:at] + bytes([report[at] ^ int(rng.integers(1, 256))]) + report[at + 1 :], {
            "another plan"
        }
    if kind == 3:
        number = int(rng.integers(len(plan.views), 1 << 16))
        return report[:10] + number.to_bytes(2, "big") + report[12:], {"no such view"}
    if kind == 4:
        return report[:12] + bytes([report[12] ^ int(rng.integers(1, 256))]) + report[13:], {
            "not the view's oracle"
        }
    if kind == 5:
        return report + rng.bytes(int(rng.integers(5, 90))), {"payload length"}
    if kind == 6 and view.oracle == "OUE":
        return report[:-1] + bytes([report[-1] | 1]), {"padding bits"} if view.domain % 8 else set()
    value = int(rng.integers(view.domain, 1 << 14)) | 128
    wide = bytes([value & 127 | 128, value >> 7 & 127 | 1])
    return report[:13] + wide, {"value out of range", "payload length"}


def test_ten_thousand_malformed_reports_are_all_rejected_for_their_reason() -> None:
    plan = plan_of()
    rng = np.random.default_rng(5)
    sound = reports_of(plan, 2000)
    made = [broken(rng, plan, sound[i % 2000]) for i in range(10_000)]
    made = [(bad, why) for bad, why in made if why]
    for reason in {r for _, why in made for r in why}:
        own = [bad for bad, why in made if reason in why and len(why) == 1]
        if own:
            found = decode_reports(plan, own, np.zeros(len(own), dtype=np.uint8))
            assert +found.rejected == Counter({reason: len(own)})
    everything = decode_reports(plan, [bad for bad, _ in made], np.zeros(len(made), dtype=np.uint8))
    assert (everything.accepted, everything.rejected.total()) == (0, len(made))


def test_a_hashed_view_is_decoded() -> None:
    plan = plan_of(
        axes=(PlannedAxis("zip", 3000, 0),), together=(), joint=(), measures=(), tau=1, rows_floor=1
    )
    assert plan.views[-2].oracle == "OLH" or plan.views[-1].oracle == "OLH"
    people = one_row_each(np.full((300, 1), 7))
    found = decode_reports(
        plan, simulate_reports(plan, people, np.random.default_rng(0)), np.zeros(300, np.uint8)
    )
    assert found.accepted == 300


def test_encoding_is_what_the_client_writes() -> None:
    plan = plan_of()
    for report in reports_of(plan, 50):
        assert encode(decode(report)) == report
