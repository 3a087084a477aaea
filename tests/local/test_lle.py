"""`estimate: lle`: a view held as its pairs, and larger boxes by maximum entropy, marked wherever they are shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import combinations, product
from math import prod
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from benchmarks.local.lle import catalog_text, collected_release, sql_answers, write_release
from benchmarks.local.planes import Case, people_of, ranges_of, truth
from benchmarks.local.simulated import one_row_each
from dpsql.catalog import Catalog, load_catalog, parse_catalog
from dpsql.central.central import publish_release
from dpsql.client.plan import read_plan
from dpsql.curator.audit.contents import check_sums
from dpsql.errors import CatalogError, NoViewError, ReleaseError
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.agents import Statement, claimed_answer
from dpsql.interfaces.web.report import report_page
from dpsql.local.content import survey_axes
from dpsql.local.parts import raked
from dpsql.local.plan import build_plan
from dpsql.local.run import Reports, collect, write_plan
from dpsql.local.simulate import simulate_reports, write_spool
from dpsql.local.survey import design_of, public_axis_maker, survey_of
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.max_entropy import (
    DRAWS,
    EntropyReading,
    FittedErrors,
    PairCounts,
    PairTables,
    entropy_counts,
    entropy_reading,
    farthest,
    from_columns,
    packed,
    pair_number,
    pair_places,
    sides_of,
    unpacked,
)
from dpsql.matrices.model import IdentityVariance
from dpsql.noise import ExactNoise
from dpsql.release import open_release
from dpsql.release.verify import verify
from tests.command import dpsql_command
from tests.interfaces.wire_client import Wire, serving

PEOPLE = 20_000
BOX = "a0 < 3 AND a1 BETWEEN 1 AND 3 AND a2 > 2"
COUNT = f"SELECT COUNT(*) FROM answer WHERE {BOX}"
MARK = "maximum entropy"


def pairs_of(cells: np.ndarray) -> PairCounts:
    """What pairs tell of one table of 2^m cells."""
    axes = range(cells.ndim)
    inside = [cells.take(1, axis=i) for i in axes]
    both = [cells.take(1, axis=j).take(1, axis=i) for i, j in combinations(axes, 2)]
    single, pair = np.array([[part.sum() for part in inside]]), np.array([[part.sum() for part in both]])
    return PairCounts(np.array([cells.sum()]), single, pair)


def cells_of(axes: int, strength: float, seed: int) -> np.ndarray:
    """A table whose logarithm is a sum over pairs: the one of largest entropy among those with its pairs."""
    rng = np.random.default_rng(seed)
    alone = rng.normal(0, 0.5, axes)
    together = rng.normal(0, strength, (axes, axes))
    logs = np.zeros((2,) * axes)
    for at in product((0, 1), repeat=axes):
        logs[at] = sum(alone[i] * at[i] for i in range(axes))
        logs[at] += sum(together[i, j] * at[i] * at[j] for i, j in combinations(range(axes), 2))
    return np.asarray(1000 * np.exp(logs) / np.exp(logs).sum())


@pytest.mark.parametrize("axes", [3, 4, 5, 6])
def test_independent_axes_answer_with_the_product(axes: int) -> None:
    shares = np.random.default_rng(axes).uniform(0.1, 0.9, axes)
    cells = np.array(100.0)
    for share in shares:
        cells = np.multiply.outer(cells, [1 - share, share])
    assert entropy_counts(pairs_of(cells)) == pytest.approx([100 * prod(shares)], rel=1e-9)


@pytest.mark.parametrize(("axes", "strength"), [(3, 0.5), (3, 1.5), (4, 0.8), (6, 0.4)])
def test_a_table_of_pairs_is_found_again(axes: int, strength: float) -> None:
    """Its logarithm is a sum over pairs, so it is the closed form of maximum entropy."""
    for seed in range(5):
        cells = cells_of(axes, strength, seed)
        found = entropy_counts(pairs_of(cells))
        assert found == pytest.approx([cells[(1,) * axes]], abs=0.05)


def test_three_axes_that_agree_always_are_one() -> None:
    """Cells that must be empty are, and nothing divides by them."""
    cells = np.zeros((2, 2, 2))
    cells[0, 0, 0], cells[1, 1, 1] = 70, 30
    assert entropy_counts(pairs_of(cells)) == pytest.approx([30.0])


@pytest.mark.parametrize(
    ("total", "single", "pair"),
    [
        (10.0, [5.0, 5, 5], [0.0, 0, 0]),  # three halves that exclude each other: no table has these pairs
        (10.0, [-1.0, 5, 12], [3.0, -2, 40]),
        (10.0, [5.0, 5, 5], [9.0, 9, 9]),
        (0.0, [1.0, 1, 1], [1.0, 1, 1]),
        (-3.0, [1.0, 1, 1], [1.0, 1, 1]),
    ],
)
def test_counts_that_no_table_has_give_a_count_in_range(
    total: float, single: list[float], pair: list[float]
) -> None:
    known = PairCounts(np.array([total]), np.array([single]), np.array([pair]))
    (found,) = entropy_counts(known)
    assert 0 <= found <= max(total, 0.0)
    assert found <= max(min(single), 0.0) + 1e-9
    assert np.isfinite(farthest(known, np.array([found]))).all()


def test_the_model_bound_holds_whatever_three_axes_do() -> None:
    """Random tables, parity among them, whose third-order part no pair shows."""
    rng = np.random.default_rng(3)
    tables = [rng.gamma(0.3, 1, (2,) * axes) for axes in (3, 4, 5) for _ in range(40)]
    tables += [np.indices((2, 2, 2)).sum(axis=0) % 2 + 0.0, 1.0 - np.indices((2, 2, 2)).sum(axis=0) % 2]
    for cells in tables:
        known = pairs_of(cells)
        found = entropy_counts(known)
        assert abs(found[0] - cells[(1,) * cells.ndim]) <= farthest(known, found)[0] + 1e-9
    odd = pairs_of(tables[-2])
    # 1 in the cell, .5 said: the bound is met
    assert farthest(odd, entropy_counts(odd))[0] == pytest.approx(0.5)


def test_pairs_are_stored_once_each_and_found_again() -> None:
    nodes = [4, 3, 2, 5]
    whole = np.random.default_rng(0).integers(-9, 9, nodes)
    tables = {}
    for i, j in combinations(range(4), 2):
        away = tuple(k for k in range(4) if k not in (i, j))
        tables[i, j] = np.asarray(whole[tuple(0 if k in away else slice(None) for k in range(4))])
    column, places = packed(tables, nodes), pair_places(nodes)
    assert len(column) == len(places) == pair_number(nodes)
    assert len(np.unique(places, axis=0)) == len(places)
    assert [whole[tuple(place)] for place in places] == column.tolist()
    for pair, table in unpacked(column, nodes).items():
        assert np.array_equal(table, tables[pair])


def test_raking_reaches_both_margins() -> None:
    rng = np.random.default_rng(1)
    rows, columns = rng.random(6), rng.random(4)
    columns *= rows.sum() / columns.sum()
    rows[2] = 0.0
    rows *= columns.sum() / rows.sum()
    cells = raked(rng.random((6, 4)) + 1e-6, rows, columns)
    assert cells.sum(axis=0) == pytest.approx(columns, abs=1e-9)
    assert cells.sum(axis=1) == pytest.approx(rows, abs=1e-9)


def bells(size: int, axes: int, strength: float) -> np.ndarray:
    """A table of axes whose logarithm is a sum over pairs of leaves: neighbours go together, the ends are rare."""
    at = np.stack(np.meshgrid(*[np.linspace(-2, 2, size)] * axes, indexing="ij"))
    together = at.sum(axis=0) ** 2 - (at**2).sum(axis=0)
    table = np.exp(-(at**2).sum(axis=0) + strength * together)
    return np.asarray(1000 * table / table.sum())


def reading_of(cells: np.ndarray, errors: FittedErrors | None = None) -> EntropyReading:
    """The reading of a table's exact pairs, with errors that are given or none."""
    axes, size = cells.ndim, len(cells)
    away = {(i, j): tuple(k for k in range(axes) if k not in (i, j)) for i, j in combinations(range(axes), 2)}
    exact = FittedErrors((np.zeros((size, size)),) * axes, ((0, size),) * axes, dict.fromkeys(away, 0.0))
    splits = (AxisSplit(IdentityVariance(size, 1.0)),) * axes
    pairs = PairTables(lambda i, j: np.asarray(cells.sum(axis=away[i, j])), (1,), lambda: None)
    return EntropyReading(splits, errors or exact, {}, pairs)


def ranges(size: int, *bounds: tuple[int, int]) -> list[np.ndarray]:
    """The masks of one box."""
    leaves = np.arange(size)
    return [((leaves >= low) & (leaves < high))[None].astype(float) for low, high in bounds]


def test_three_parts_are_nearer_than_two() -> None:
    """Pairs say all of these axes, leaf by leaf; below and above put together they do not."""
    cells = bells(12, 4, 0.2)
    reading, middle = reading_of(cells), ranges(12, *[(4, 9)] * 4)
    ((found,), (bound,)), exact = reading.answers(middle), cells[4:9, 4:9, 4:9, 4:9].sum()
    (two,) = entropy_counts(reading.counts(middle))
    assert abs(found - exact) < 0.6 * abs(two - exact)
    assert abs(found - exact) < bound
    (variance,) = reading.covariance(middle).noise
    assert variance**0.5 == pytest.approx(abs(found - two) / 2), (
        "exact pairs leave half of what the cut moved open"
    )


def test_leaves_outside_lie_below_or_above_and_are_all_there() -> None:
    masks = np.array([[0.0, 0, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [1, 0, 0, 0, 1], [1, 0, 0, 0, 0]])
    sides = sides_of(masks)
    assert np.array_equal(sides.sum(axis=1), np.ones_like(masks))
    assert np.array_equal(sides[:, 1], masks)
    assert np.array_equal(sides[0, 0], [1, 1, 0, 0, 0])


def drawn_errors(axes: int, size: int, seed: int) -> FittedErrors:
    rng = np.random.default_rng(seed)
    roots = [rng.normal(0, 1, (size, size)) for _ in range(axes)]
    roots = [root - root.mean(axis=0) for root in roots]
    edges = tuple(
        (0, *sorted(rng.choice(np.arange(1, size), 2, replace=False).tolist()), size) for _ in roots
    )
    pairs = {pair: float(rng.gamma(2.0)) for pair in combinations(range(axes), 2)}
    return FittedErrors(tuple(root @ root.T for root in roots), edges, pairs)


def test_an_axis_that_moves_takes_its_pairs_along() -> None:
    """Axes that are independent stay so when one of them moves: the answer moves by the others' shares of it."""
    size, shares = 8, np.random.default_rng(2).dirichlet(np.full(8, 2.0), 3)
    cells = 1e6 * np.einsum("a,b,c->abc", *shares)
    one = np.outer(np.eye(size)[2] - np.eye(size)[6], np.eye(size)[2] - np.eye(size)[6])
    errors = FittedErrors(
        (one, np.zeros((size, size)), np.zeros((size, size))),
        ((0, size),) * 3,
        dict.fromkeys(combinations(range(3), 2), 0.0),
    )
    (variance,) = reading_of(cells, errors).covariance(ranges(size, (0, 4), (2, 7), (1, 6))).noise
    others = shares[1, 2:7].sum() * shares[2, 1:6].sum()
    drawn = np.random.default_rng([1, 1, 0]).standard_normal((DRAWS, size)) @ reading_of(
        cells, errors
    ).errors.root(0)
    assert variance**0.5 == pytest.approx(others * np.sqrt(np.mean(drawn[:, 2] ** 2)), rel=1e-3)


def test_errors_of_fitted_tables_are_stored_and_read_again() -> None:
    for axes in (3, 6):
        errors = drawn_errors(axes, 7, axes)
        columns = errors.columns()
        order = np.random.default_rng(0).permutation(len(columns["part"]))
        again = from_columns({name: column[order] for name, column in columns.items()})
        assert again.edges == errors.edges
        assert again.pairs == errors.pairs
        for axis, leaves in enumerate(errors.axes):
            assert again.axes[axis] == pytest.approx(leaves)
        assert again.scaled(2.0).pairs[0, 1] == pytest.approx(4 * errors.pairs[0, 1])


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [(0, 0, -1.0), (0, None, 0.0), (5, 1, 9.0), (5, 0, 1.0), (5, None, 0.0), (1, None, 0.0)],
)
def test_errors_that_nothing_writes_are_refused(part: int, place: int | None, value: float) -> None:
    """A variance below 0 or none, edges that do not rise, begin above 0 or are missing, and an axis without leaves."""
    columns = {name: column.copy() for name, column in drawn_errors(3, 7, 1).columns().items()}
    lines = np.flatnonzero(columns["part"] == part)
    if place is None:
        columns = {name: np.delete(column, lines) for name, column in columns.items()}
    else:
        columns["value"][lines[place]] = value
    with pytest.raises(ValueError, match=r"pairs|cells|array"):
        from_columns(columns)


@pytest.mark.parametrize("place", [99, -3])
def test_covariances_outside_of_an_axis_are_refused(place: int) -> None:
    columns = {name: column.copy() for name, column in drawn_errors(3, 7, 1).columns().items()}
    (line, *_) = np.flatnonzero(columns["part"] == 1)
    columns["place"][line] = place
    with pytest.raises(ValueError, match="of no array"):
        from_columns(columns)


def test_errors_of_other_axes_are_refused() -> None:
    split = AxisSplit(IdentityVariance(6, 1.0))
    with pytest.raises(ValueError, match="those of other axes"):
        entropy_reading((split, split, split, drawn_errors(3, 7, 1)), {})
    with pytest.raises(ValueError, match="those of other axes"):
        entropy_reading((split, split, split), {})


def respondents(size: int = 6) -> np.ndarray:
    """Three axes that go together in pairs."""
    rng = np.random.default_rng(5)
    common = rng.integers(0, size, PEOPLE)
    shifted = [(common + rng.integers(0, 3, PEOPLE)) % size for _ in range(3)]
    return np.stack(shifted, axis=1)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> Path:
    folder = tmp_path_factory.mktemp("lle")
    return write_release(folder, respondents(), 6, "3", np.random.default_rng(9))


@pytest.fixture(scope="module")
def opened(file: Path) -> Iterator[OpenReleases]:
    releases = open_session([file])
    yield releases
    releases.close()


def test_a_box_over_three_axes_is_near_and_marked(opened: OpenReleases) -> None:
    leaves, answer = respondents(), opened.query(COUNT)
    exact = np.sum((leaves[:, 0] < 3) & (leaves[:, 1] >= 1) & (leaves[:, 1] <= 3) & (leaves[:, 2] > 2))
    ((count,),), ((error,),), ((bound,),) = answer.rows, answer.stderr_rows, answer.model_bound
    assert 0 < error < 0.1 * PEOPLE
    assert abs(count - exact) < 4 * error + bound
    assert any(MARK in flag and "do not add up" in flag for flag in answer.flags)
    assert any("error bars exclude that bias" in note for note in answer.notes)


def test_one_axis_and_two_are_sums_and_unmarked(opened: OpenReleases) -> None:
    total = opened.query("SELECT COUNT(*) FROM answer").rows[0][0]
    parts = opened.query("SELECT a1, COUNT(*) FROM answer WHERE a0 < 3 GROUP BY a1")
    whole = opened.query("SELECT COUNT(*) FROM answer WHERE a0 < 3")
    assert total == pytest.approx(PEOPLE)
    assert sum(row[1] for row in parts.rows) == pytest.approx(whole.rows[0][0], abs=1e-5)
    assert not any(MARK in note for answer in (parts, whole) for note in answer.notes)
    mixed = opened.query("SELECT AVG(a0) FROM answer WHERE a1 < 3")
    assert not any(MARK in note for note in mixed.notes)


def test_the_same_box_has_one_answer_however_it_is_asked(opened: OpenReleases, file: Path) -> None:
    where = "a1 BETWEEN 1 AND 3 AND a2 > 2"
    alone = opened.query(f"SELECT COUNT(*), DP_STDERR(COUNT(*)) FROM answer WHERE a0 = 2 AND {where}")
    grouped = opened.query(f"SELECT a0, COUNT(*), DP_STDERR(COUNT(*)) FROM answer WHERE {where} GROUP BY a0")
    counted = opened.query(f"SELECT COUNT(*) FILTER (WHERE a0 = 2 AND {where}), COUNT(*) FROM answer")
    row = next(row for row in grouped.rows if row[0] == 2)
    assert alone.rows[0] == pytest.approx(row[1:])
    assert counted.rows[0][0] == pytest.approx(row[1])
    with closing(open_session([file])) as again:
        assert again.query(COUNT).rows == opened.query(COUNT).rows
        assert again.query(COUNT).stderr_rows == opened.query(COUNT).stderr_rows


def test_sums_of_groups_have_the_error_of_their_sum(opened: OpenReleases) -> None:
    """Fits of groups are no parts of one fit: the error of their total follows from how they err together."""
    inner = "SELECT a0, COUNT(*) AS n FROM answer WHERE a1 < 3 AND a2 < 3 GROUP BY a0"
    groups, total = opened.query(inner), opened.query(f"SELECT SUM(n) FROM ({inner})")
    assert total.rows[0][0] == pytest.approx(sum(row[1] for row in groups.rows))
    assert 0 < total.stderr_rows[0][0] <= sum(row[1] for row in groups.stderr_rows) + 1e-9
    whole = opened.query("SELECT COUNT(*) FROM answer WHERE a1 < 3 AND a2 < 3")
    assert total.rows[0][0] == pytest.approx(whole.rows[0][0], abs=5 * whole.stderr_rows[0][0])


def test_an_empty_box_and_a_contradiction_are_zero(opened: OpenReleases) -> None:
    assert opened.query("SELECT COUNT(*) FROM answer WHERE a0 = 99 AND a1 < 3 AND a2 < 3").rows == ((0.0,),)
    rows = opened.query("SELECT COUNT(*) FROM answer WHERE a0 < 3 AND a1 < 3 AND (a2 < 3 OR a2 > 4)").rows
    assert rows[0][0] > 0


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT AVG(a0) FROM answer WHERE a1 < 3 AND a2 < 3", "no sums, averages"),
        ("SELECT SUM(a2) FROM answer WHERE a0 < 3 AND a1 < 3", "no sums, averages"),
        ("SELECT MEDIAN(a0) FROM answer WHERE a1 < 3 AND a2 < 3", "quantile"),
    ],
)
def test_what_it_cannot_answer_is_refused_by_name(opened: OpenReleases, sql: str, says: str) -> None:
    with pytest.raises(NoViewError, match=MARK) as refused:
        opened.query(sql)
    assert says in str(refused.value)


def test_more_groups_than_a_statement_may_fit_are_refused(
    opened: OpenReleases, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpsql.planner.answerability.MOST_FITTED", 48)
    with pytest.raises(NoViewError, match="up to 48 groups"):
        opened.query("SELECT a0, a1, COUNT(*) AS n FROM answer WHERE a2 < 2 GROUP BY a0, a1")


def test_the_mark_stands_at_every_interface(opened: OpenReleases, file: Path) -> None:
    connection = dpsql.connect(str(file))
    cursor = connection.cursor()
    cursor.execute(COUNT)
    assert any(MARK in note for note in cursor.notes)
    connection.close()
    statement = Statement(opened.releases[0].meta.release_id, COUNT, 0.95)
    answer = opened.query(COUNT)
    assert MARK in str(claimed_answer(answer, statement, "c1"))  # what agents are told over MCP
    assert MARK in str(dpsql.query(COUNT, release=file).notes)
    assert any(MARK in line for line in answer.plan)  # EXPLAIN
    assert answer.provenance["estimates"] == MARK
    assert opened.query("SELECT COUNT(*) FROM answer WHERE a0 < 3").provenance["estimates"] == "unbiased"


def test_the_mark_stands_beside_exported_tables(file: Path, tmp_path: Path) -> None:
    done = dpsql_command("export", file, "-o", tmp_path / "out")
    assert done.returncode == 0, done
    (view,) = json.loads((tmp_path / "out" / "schema.json").read_text())["views"]
    assert view["estimates"] == MARK
    assert any("do not add up" in note for note in view["notes"])


def test_drivers_are_sent_the_mark_as_a_notice(file: Path) -> None:
    with serving(file) as port:
        wire = Wire(port)
        wire.until_ready()
        notices = [body.decode() for kind, body in wire.ask(COUNT) if kind == "N"]
        plain = [
            body.decode()
            for kind, body in wire.ask("SELECT COUNT(*) FROM answer WHERE a0 < 3")
            if kind == "N"
        ]
    assert any(MARK in line for line in notices)
    assert not any(MARK in line for line in plain)


def test_the_file_is_whole_and_its_nodes_add_up(file: Path) -> None:
    assert verify(file, None).numbers == pair_number([open_release(file).tree(i).size for i in range(3)])
    with closing(open_release(file)) as release:
        assert check_sums(release).held


def damaged_copy(file: Path, folder: Path, *statements: str) -> Path:
    """The release without its signature, after some statements."""
    copy = folder / f"copy{len(list(folder.iterdir()))}.dpsql"
    copy.write_bytes(file.read_bytes())
    with duckdb.connect(str(copy)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.execute("CHECKPOINT")
    return copy


NODES, LEAF = "node_combination_0", "n1 = 5 AND n2 = 6"
"""Nodes 5 and 6 of these trees are leaves."""


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (f"DELETE FROM {NODES} WHERE {LEAF}", "lacks node combinations"),
        (f"UPDATE {NODES} SET n1 = 6 WHERE {LEAF}", "lacks node combinations"),
        (f"UPDATE {NODES} SET nonnegative = NULL WHERE {LEAF}", "gaps"),
        (f"UPDATE {NODES} SET n1 = -5 WHERE {LEAF}", "lacks node combinations"),
        (f"INSERT INTO {NODES} SELECT * FROM {NODES} WHERE {LEAF}", "some twice"),
    ],
)
def test_a_file_with_other_pairs_is_refused(file: Path, tmp_path: Path, statement: str, says: str) -> None:
    copy = damaged_copy(file, tmp_path, statement)
    with pytest.raises(ReleaseError) as refused:
        dpsql.query(COUNT, release=copy)
    assert says in str(refused.value)
    with pytest.raises(ReleaseError):
        verify(copy, None)


def test_huge_and_negative_numbers_answer_or_are_refused(file: Path, tmp_path: Path) -> None:
    """A file may say anything: the answer stays a number in range, or one line refuses it."""
    for number in (-(2**62), 2**62):
        copy = damaged_copy(
            file, tmp_path, f"UPDATE {NODES} SET nonnegative = {number} WHERE n1 > 0 AND n2 > 0"
        )
        answer = dpsql.query(COUNT, release=copy)
        assert np.isfinite(answer.rows[0][0])
        assert answer.rows[0][0] >= 0


def test_a_node_combination_of_three_axes_is_refused_by_verify(file: Path, tmp_path: Path) -> None:
    copy = damaged_copy(
        file,
        tmp_path,
        f"UPDATE {NODES} SET n3 = 1 WHERE n1 = 2 AND n2 = 3",
        f"INSERT INTO {NODES} VALUES (9, 9, 9, 0, 0)",
    )
    with pytest.raises(ReleaseError):
        verify(copy, None)


def test_a_statistic_that_calls_itself_fitted_without_pairs_is_refused(file: Path, tmp_path: Path) -> None:
    sql = """UPDATE meta SET value = replace(value, '[[0, 1], ', '[[0, 1, 2], ') WHERE key = 'statistics'"""
    with pytest.raises(ReleaseError, match="not read by its variance models"):
        dpsql.query(COUNT, release=damaged_copy(file, tmp_path, sql))


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory, publishes: None) -> Path:
    """A central release of one axis of everybody, and pairs that everybody or a sample reported."""
    folder, rng, leaves = tmp_path_factory.mktemp("town"), np.random.default_rng(6), respondents()
    np.savetxt(folder / "answer.csv", leaves, fmt="%d", delimiter=",", header="a0,a1,a2", comments="")
    text = catalog_text(3, 6, "2")
    source = f"source: {{kind: csv, root: {folder}, tables: {{answer: answer.csv}}}}\n"
    central = text.replace("collection: {epsilon: 2, estimate: lle, branching: 4}\n", source)
    central = central.replace("axes: [answer.a0, answer.a1, answer.a2]", "axes: [answer.a0]")
    (folder / "central.yaml").write_text(central.replace("name: boxes", "name: central"))
    publish_release(
        load_catalog(folder / "central.yaml"),
        folder / "central.dpsql",
        noise=ExactNoise(rng.bytes),
        key=bytes(32),
    )
    for word, people in (("random", leaves[::4]), ("all", leaves), ("unknown", leaves[::4])):
        (folder / word).mkdir()
        asked = text.replace("estimate: lle", f"estimate: lle, participation: {word}")
        collected_release(folder / word, asked.replace("name: boxes", f"name: {word}"), people, rng)
    return folder


@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("word", ["random", "all", "unknown"])
def test_boxes_beside_a_central_release_are_of_those_who_reported(
    town: Path, word: str, combine: bool
) -> None:
    """Pairs are no table of all cells, so a sample's are neither scaled nor pooled; every answer says whose it is."""
    releases = [town / "central.dpsql", town / word / "boxes.dpsql"]
    people = PEOPLE if word == "all" else PEOPLE // 4
    box = dpsql.query(COUNT, releases, combine=combine)
    assert box.provenance["routed"]["chosen"] == word
    assert 0 < box.rows[0][0] < people
    assert box.rows == dpsql.query(COUNT, releases[1]).rows
    assert any(f"of the {people:,} who reported" in flag for flag in box.flags)
    assert any(MARK in flag for flag in box.flags)


@pytest.mark.parametrize("word", ["random", "unknown"])
def test_a_sample_of_pairs_is_left_out_where_a_central_release_answers(town: Path, word: str) -> None:
    releases = [town / "central.dpsql", town / word / "boxes.dpsql"]
    for combine in (False, True):
        total = dpsql.query("SELECT COUNT(*) FROM answer", releases, combine=combine)
        assert total.provenance["routed"]["chosen"] == "central"
        assert total.rows[0][0] == pytest.approx(PEOPLE, rel=0.01)
        assert f"{word} is left out: it covers only those who reported to it" in total.notes


def test_pairs_of_everybody_answer_together_with_a_central_release(town: Path) -> None:
    releases = [town / "central.dpsql", town / "all" / "boxes.dpsql"]
    sql = "SELECT a0, COUNT(*) FROM answer GROUP BY a0"
    pooled, alone = (dpsql.query(sql, releases, combine=combine) for combine in (True, False))
    assert pooled.provenance["combined"] == ["central", "all"]
    for row, single in zip(pooled.stderr_rows, alone.stderr_rows, strict=True):
        assert 0 < row[1] <= single[1] * (1 + 1e-9)
    assert not any(MARK in note for note in pooled.notes)


def catalog_of(axes: int = 3, **changes: str) -> Catalog:
    text = catalog_text(axes, 6, "1")
    for old, new in changes.items():
        text = text.replace(
            {"estimate": "estimate: lle", "measures": "[count]", "unit": "unit: row"}[old], new
        )
    return parse_catalog(text, "boxes.yaml")


@pytest.mark.parametrize(
    ("axes", "changes", "says"),
    [
        (2, {}, "three to six axes, and there are 2"),
        (7, {}, "three to six axes, and there are 7"),
        (3, {"estimate": "estimate: lle, kind: lprr"}, "leave out"),
        (3, {"estimate": "estimate: lle, kind: ahead"}, "leave out"),
        (3, {"estimate": "estimate: lle, participation: random, everybody: 100"}, "leave out everybody"),
        (3, {"estimate": "estimate: lle, tau: 2"}, "leave out tau"),
        (3, {"estimate": "estimate: lle, shares: {boxes: 1}"}, "leave out shares"),
        (3, {"estimate": "estimate: maxent"}, "estimate"),
    ],
)
def test_catalogs_that_cannot_be_are_refused(axes: int, changes: dict[str, str], says: str) -> None:
    with pytest.raises(CatalogError) as refused:
        catalog_of(axes, **changes)
    assert says in str(refused.value)


def test_a_second_view_a_measure_and_several_rows_are_refused() -> None:
    text = catalog_text(3, 6, "1")
    with pytest.raises(CatalogError, match="works with one view"):
        parse_catalog(text + "  more: {of: answer, axes: [answer.a0], measures: [count]}\n", "boxes.yaml")
    measure = text.replace("cuts: {width: 1}, nullable: false}", "cuts: {width: 1}, measure: true}", 1)
    with pytest.raises(CatalogError, match="counts rows alone"):
        parse_catalog(measure.replace("[count]", "[count, answer.a0]"), "boxes.yaml")
    person = "  person: {role: dimension, key: id, private: true, columns: {}}\n"
    person += "  answer: {foreign_keys: {id: person}, max_ids: 3, "
    rows = text.replace("unit: row", "unit: person.id").replace("  answer: {", person)
    with pytest.raises(CatalogError, match="one row per person"):
        parse_catalog(rows, "boxes.yaml")


def test_long_axes_and_large_pairs_are_refused_when_planned() -> None:
    long = parse_catalog(catalog_text(6, 256, "1"), "boxes.yaml")
    with pytest.raises(CatalogError, match=r"has 257 leaves, and `estimate: lle` takes up to 256"):
        survey_of(long, public_axis_maker(long))  # one leaf is for values beyond the bounds
    longest = parse_catalog(catalog_text(6, 255, "1"), "boxes.yaml")
    assert [axis.tree.n for axis in survey_axes(survey_of(longest, public_axis_maker(longest)))] == [256] * 6
    capped = parse_catalog(catalog_text(3, 6, "1").replace("[count]}", "[count], cells: 100}"), "boxes.yaml")
    with pytest.raises(CatalogError, match="its pairs have 147 cells"):
        survey_of(capped, public_axis_maker(capped))


def test_people_are_asked_what_any_collection_asks() -> None:
    """The plan is the one without the key, view by view: nothing new is promised, and nothing new is to be proven."""
    plans = []
    for text in (catalog_text(4, 6, "1"), catalog_text(4, 6, "1").replace(", estimate: lle", "")):
        catalog = parse_catalog(text, "boxes.yaml")
        plans.append(read_plan(build_plan(design_of(survey_of(catalog, public_axis_maker(catalog)), 10_000))))
    assert plans[0].views == plans[1].views
    assert {view.kind for view in plans[0].views} <= {"grid", "wave"}
    pairs = {tuple(view.axes) for view in plans[0].views if len(view.axes) == 2}
    assert pairs == set(combinations(range(4), 2))


@pytest.mark.usefixtures("publishes")
def test_reports_become_a_release_that_answers(tmp_path: Path) -> None:
    """Five axes of 12 leaves and one for others, 371,293 cells, are over a cap of 100,000; reports of pairs answer."""
    capped = catalog_text(5, 12, "4").replace("[count]}", "[count], cells: 100000}")
    (tmp_path / "c.yaml").write_text(capped)
    (tmp_path / "plain.yaml").write_text(capped.replace(", estimate: lle", ""))
    with pytest.raises(CatalogError, match="estimate: lle"):
        write_plan(tmp_path / "plain.yaml", tmp_path / "no.json", 3000)
    write_plan(tmp_path / "c.yaml", tmp_path / "plan.json", 3000)
    plan, rng = read_plan((tmp_path / "plan.json").read_bytes()), np.random.default_rng(0)
    reports = simulate_reports(plan, one_row_each(rng.integers(0, 12, (3000, 5))), rng)
    write_spool(tmp_path / "r.parquet", reports)
    collect(
        Reports(tmp_path / "plan.json", [tmp_path / "r.parquet"], b"k" * 32), tmp_path / "s.dpsql", "0" * 32
    )
    where = " AND ".join(f"a{i} < 6" for i in range(5))
    answer = dpsql.query(f"SELECT COUNT(*) FROM answer WHERE {where}", release=tmp_path / "s.dpsql")
    assert 0 <= answer.rows[0][0] <= 3000
    assert answer.flags
    release = open_release(tmp_path / "s.dpsql")
    assert MARK in report_page(release)
    release.close()


@pytest.mark.slow
@pytest.mark.usefixtures("publishes")
def test_error_bars_cover_axes_that_pairs_say_all_of(tmp_path: Path) -> None:
    """Falling columns that go together a little, 30 boxes each; bars of a tenth of the width would be found."""
    case, held, narrow = Case("power", 0.2, "1"), list[float](), list[float]()
    for run in range(12):
        rng = np.random.default_rng([17, run])
        leaves = people_of(case, PEOPLE, 3, 8, rng)
        boxes = ranges_of(3, 8, 30, rng)
        counts, errors = sql_answers(write_release(tmp_path, leaves, 8, case.epsilon, rng), boxes)
        off = np.abs(counts - PEOPLE * truth(leaves, boxes))
        held.append(float(np.mean(off <= 1.96 * errors)))
        narrow.append(float(np.mean(off <= 0.196 * errors)))
    assert np.mean(held) >= 0.9
    assert np.mean(narrow) <= 0.5
