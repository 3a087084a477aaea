"""Intervals of rows that a statement chose by their noise are false-coverage-adjusted, at every interface alike."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import pytest

from dpsql.errors import QueryTimeout
from dpsql.executor import outer
from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.outer import Row
from dpsql.executor.relation import Relation
from dpsql.intervals import cells
from dpsql.intervals.cells import UNKNOWN, Candidates, NoisySelection, choice
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import Interval, quantile
from dpsql.release.request import Request
from dpsql.results.render import margin_lines
from dpsql.results.result import Result
from dpsql.sql.carry import LineageColumns
from dpsql.sql.selection import PickQuery

VARIANCE = 4.0
GROUPS = "SELECT age, COUNT(*) AS n FROM shop GROUP BY age"
DOMAIN = f"{GROUPS} HAVING age IS NOT NULL"
"""The groups that LIMIT chooses from: without that of ages which the catalog does not know."""
TOP = f"{GROUPS} ORDER BY n DESC LIMIT 3"


def widths(result: Result, column: int = 1, level: float = 0.95) -> list[float]:
    """High less low, row by row."""
    low, high = result.interval_rows(level)
    return [b[column] - a[column] for a, b in zip(low, high, strict=True)]


def candidates(result: Result) -> int:
    """How many the note says."""
    (note,) = (note for note in result.notes if note.startswith("chosen by noisy values"))
    assert note in result.flags
    return int(note.split()[-2])


def single(answerer: ReleaseEngine, level: float, text: str = GROUPS) -> dict[object, float]:
    """Widths of every group's interval at a level."""
    result = answerer.query(text)
    return {row[0]: width for row, width in zip(result.rows, widths(result, 1, level), strict=True)}


@pytest.mark.parametrize("offset", [0, 2])
def test_the_largest_have_the_level_of_benjamini_and_yekutieli(answerer: ReleaseEngine, offset: int) -> None:
    whole = answerer.query(DOMAIN)
    low, high = whole.interval_rows(1 - 0.05 * 3 / len(whole.rows))
    shown = sorted((row[1] for row in whole.rows), reverse=True)[offset : offset + 3]
    ends = zip(low, high, strict=True)
    m = sum(b[1] >= shown[-1] and (not offset or a[1] <= shown[0]) for a, b in ends)
    result = answerer.query(f"{TOP} OFFSET {offset}")
    assert candidates(result) == m > 3
    for level in (0.95, 0.8):
        wide = single(answerer, 1 - (1 - level) * 3 / m)
        assert widths(result, 1, level) == pytest.approx([wide[row[0]] for row in result.rows])
    assert [row[1] for row in result.stderr_rows] == pytest.approx(
        [width / (2 * 1.959964) for width in widths(result)]
    )
    assert result.noise_rows[0][1] < result.stderr_rows[0][1]  # components are of single numbers


@pytest.mark.parametrize("text", [
    f"{GROUPS} ORDER BY n DESC LIMIT 100", f"{GROUPS} ORDER BY n DESC", f"{GROUPS} ORDER BY age LIMIT 3",
    f"SELECT * FROM ({GROUPS}) AS g WHERE age < 30", f"{GROUPS} HAVING age < 30", f"{GROUPS} HAVING COUNT(*) > -1e6",
])  # fmt: skip
def test_what_noise_did_not_choose_is_unchanged(answerer: ReleaseEngine, text: str) -> None:
    result, plain = answerer.query(text), single(answerer, 0.95)
    assert result.rows and not any("chosen" in note for note in result.notes)
    assert widths(result) == pytest.approx([plain[row[0]] for row in result.rows])


LIKE_TOP = (
    f"SELECT * FROM ({TOP}) AS t", f"WITH t AS ({TOP}) SELECT age, n FROM t ORDER BY age",
    f"{GROUPS} ORDER BY COUNT(*) DESC FETCH FIRST 3 ROWS ONLY", f"{GROUPS} ORDER BY 2 DESC LIMIT 3",
    f"{GROUPS} QUALIFY ROW_NUMBER() OVER (ORDER BY COUNT(*) DESC) <= 3",
)  # fmt: skip


@pytest.mark.parametrize("text", LIKE_TOP)
def test_spellings_of_the_largest_are_widened_alike(answerer: ReleaseEngine, text: str) -> None:
    top, result = answerer.query(TOP), answerer.query(text)
    assert sorted(result.rows) == sorted(top.rows) and candidates(result) == candidates(top)
    assert sorted(widths(result)) == pytest.approx(sorted(widths(top)))


@pytest.mark.parametrize(("text", "null"), [
    (f"{GROUPS} HAVING COUNT(*) > 40", True), (f"SELECT * FROM ({GROUPS}) AS g WHERE n > 40 AND age > 0", False),
    (f"SELECT * FROM ({GROUPS}) AS g WHERE 40 < n", True),
])  # fmt: skip
def test_a_threshold_has_the_candidates_that_reach_it(answerer: ReleaseEngine, text: str, null: bool) -> None:
    whole = answerer.query(GROUPS)
    result = answerer.query(text)
    rows = [row for row in whole.rows if null or row[0] is not None]
    highs = whole.interval_rows(1 - 0.05 * len(result.rows) / len(rows))[1]
    ends = {row[0]: high[1] for row, high in zip(whole.rows, highs, strict=True)}
    m = sum(ends[row[0]] >= 40 for row in rows)
    assert candidates(result) == m > len(result.rows)
    wide = single(answerer, 1 - 0.05 * len(result.rows) / m)
    assert widths(result) == pytest.approx([wide[row[0]] for row in result.rows])


def test_where_no_one_value_chooses_all_rows_are_candidates(answerer: ReleaseEngine) -> None:
    ranked = f"SELECT *, RANK() OVER (ORDER BY n DESC) AS place FROM ({GROUPS}) AS g"
    result = answerer.query(f"SELECT age, n FROM ({ranked}) AS r WHERE place <= 3")
    assert len(result.rows) == 3 and candidates(result) == len(answerer.query(GROUPS).rows)


def test_functions_of_an_error_are_widened_with_the_table(answerer: ReleaseEngine) -> None:
    errors = "DP_INTERVAL_LOW({0}) AS low, DP_INTERVAL_HIGH({0}) AS high, DP_STDERR({0}) AS e, "
    errors += "DP_STDERR({0}, 'noise') AS s"
    inside = f"SELECT age, COUNT(*) AS n, {errors.format('COUNT(*)')} FROM shop GROUP BY age ORDER BY n DESC LIMIT 3"
    outside = f"SELECT age, n, {errors.format('n')} FROM ({GROUPS}) AS g ORDER BY n DESC LIMIT 3"
    over = f"SELECT age, t, {errors.format('t')} FROM (SELECT age, SUM(n) AS t FROM (SELECT age, region, COUNT(*) AS n "
    over += "FROM shop GROUP BY 1, 2) AS h GROUP BY age) AS g ORDER BY t DESC LIMIT 3"
    for text in (inside, outside, over):
        result = answerer.query(text)
        low, high = result.interval_rows()
        assert candidates(result) > 3
        for row, a, b, e, s in zip(
            result.rows, low, high, result.stderr_rows, result.noise_rows, strict=True
        ):
            assert row[2:] == pytest.approx((a[1], b[1], e[1], s[1]))
    picked = answerer.query(
        f"SELECT age, n, DP_STDERR(n) AS e FROM ({GROUPS}) AS g WHERE n > 4 * DP_STDERR(n)"
    )
    assert candidates(picked) > len(picked.rows) and any("decide which rows" in note for note in picked.flags)
    assert picked.rows[0][2] < picked.stderr_rows[0][1]


def test_margins_say_the_widened_interval(answerer: ReleaseEngine) -> None:
    result = answerer.query(TOP)
    (line,) = margin_lines(result)
    least, most = min(widths(result)) / 2, max(widths(result)) / 2
    assert f"{least:.0f}" in line and f"{most:.0f}" in line


def test_a_row_that_shows_nothing_noisy_says_how_it_was_chosen(answerer: ReleaseEngine) -> None:
    assert candidates(answerer.query("SELECT age FROM shop GROUP BY age ORDER BY COUNT(*) DESC LIMIT 1")) > 1


def test_uncounted_candidates_are_said(answerer: ReleaseEngine) -> None:
    text = f"SELECT a.age, a.n FROM ({GROUPS}) AS a JOIN ({GROUPS}) AS b ON a.age = b.age AND a.n > 30 - b.n"
    assert UNKNOWN in answerer.query(text).flags
    shown = answerer.query(f"SELECT age, CASE WHEN n > 40 THEN n END AS n FROM ({GROUPS}) AS g")
    assert UNKNOWN in shown.flags and shown.stderr_rows[0][1] is not None
    guarded = answerer.query(f"SELECT age, CASE WHEN n <> 0 THEN 1 / n END AS n FROM ({GROUPS}) AS g")
    assert not any("chosen" in note for note in guarded.notes)
    union = f"{GROUPS} UNION ALL SELECT 0, COUNT(*) FROM shop WHERE age < 20 ORDER BY n DESC LIMIT 3"
    assert candidates(answerer.query(union)) == len(answerer.query(DOMAIN).rows) + 1


def test_levels() -> None:
    assert NoisySelection(3, 60, 0.05).level(0.95) == pytest.approx(1 - 0.0025)
    assert NoisySelection(3, 3).level(0.9) == pytest.approx(0.9)


@pytest.mark.parametrize("kurtosis", [0.0, 3.0])
@pytest.mark.parametrize(
    "centre", [np.zeros(60), -np.arange(60) / 20, np.where(np.arange(60) < 8, 0.0, -5.0)]
)
def test_the_largest_are_covered(centre: np.ndarray, kurtosis: float) -> None:
    """Tied, flat and two levels of groups; the candidates of 95% intervals cover .77 of the largest of tied ones."""
    rng = np.random.default_rng(3)

    def intervals(value: np.ndarray, level: float) -> Interval:
        half = quantile(level, kurtosis)
        return Interval(value - half, value + half)

    missed = []
    for _ in range(600):
        noise = rng.laplace(size=60) / np.sqrt(2) if kurtosis else rng.normal(size=60)
        value = centre + noise
        query = PickQuery("", (), None, True, range(1))
        found = Candidates(np.ones(60, bool), value, lambda rows, level, v=value: intervals(v[rows], level))
        first = int(np.argmax(value))
        missed.append(abs(noise[first]) > quantile(choice(query, found).level(0.95), kurtosis))
    assert np.mean(missed) < 0.075


def test_groups_of_noisy_keys_are_all_candidates(answerer: ReleaseEngine) -> None:
    """Noise decides which rows are in such a group, so no cells say how far its key may move."""
    grouped = f"SELECT n, COUNT(*) AS c FROM ({GROUPS}) AS t GROUP BY n"
    every = answerer.query(grouped).rows
    middle = float(np.median([row[0] for row in every]))
    result = answerer.query(f"{grouped} HAVING n > {middle}")
    assert sorted(result.rows) == sorted(row for row in every if row[0] > middle)
    assert candidates(result) == len(every) > len(result.rows)


def test_intervals_of_candidates_go_by_blocks_and_end_with_their_request(
    answerer: ReleaseEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    top = f"{GROUPS} ORDER BY n DESC LIMIT 5"
    unblocked = candidates(answerer.query(top))
    monkeypatch.setattr(cells, "BLOCK_ROWS", 4)
    request, plain, sizes = Request(), outer.composite, list[int]()

    def counted(
        column: LineageColumns, rows: Sequence[Row | None], relations: tuple[Relation, ...]
    ) -> Composite:
        sizes.append(len(rows))
        return plain(column, rows, relations)

    monkeypatch.setattr(outer, "composite", counted)
    assert candidates(answerer.query(f"{top} OFFSET 0")) == unblocked  # another text: answers are kept
    assert len(sizes) > 2 and max(sizes) == 4
    sizes.clear()

    def stopping(
        column: LineageColumns, rows: Sequence[Row | None], relations: tuple[Relation, ...]
    ) -> Composite:
        request.stop()
        return counted(column, rows, relations)

    monkeypatch.setattr(outer, "composite", stopping)
    with pytest.raises(QueryTimeout), request.working():
        answerer.query(f"{top} OFFSET 1").stderr_rows  # noqa: B018 - worked out here
    assert len(sizes) == 1


def test_where_only_nulls_are_shown_all_rows_are_candidates_without_a_warning() -> None:
    value = np.array([np.nan, np.nan, 1.0, 2.0])
    found = Candidates(
        np.array([True, True, False, False]), value, lambda rows, level: Interval(value[rows], value[rows])
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choice(PickQuery("", (), None, True), found).candidates == 4
