"""What stands behind the comparison with other libraries: conversions, counted lines, the same questions for all."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.peers import adult, protocol, star
from benchmarks.peers.measure import DELTA, Part, judge, parts, row, shape
from benchmarks.peers.page import LINES

SCRIPTS = sorted(Path(protocol.__file__).parent.glob("with_*.py"))


def test_a_gaussian_mechanism_spends_its_delta_exactly() -> None:
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    drawn = losses.GaussianPrivacyLoss(1 / protocol.gaussian(1.0, DELTA))
    assert drawn.get_delta_for_epsilon(1.0) == pytest.approx(DELTA, rel=1e-6)


def test_zcdp_spends_less_than_the_plain_conversion_allows_and_more_than_an_exact_one() -> None:
    amount = protocol.rho(1.0, DELTA)
    assert amount + 2 * math.sqrt(amount * math.log(1 / DELTA)) > 1.0
    assert amount < protocol.gaussian(1.0, DELTA) ** 2 / 2


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_says_what_a_user_writes(script: Path) -> None:
    assert 10 <= protocol.lines(str(script)) <= 60


def test_questions_lie_in_the_star_and_are_the_same_for_every_total() -> None:
    many = star.questions(1000, star.SEED)
    assert all(18 <= q.youngest <= q.oldest <= 89 and q.cheapest <= q.dearest for q in many)
    assert many == star.questions(1000, star.SEED)
    assert len({shape(box, i).split(" WHERE ")[0] for i, box in enumerate(many[:50])}) == 50


def test_a_row_holds_errors_and_intervals() -> None:
    truths = [(10, 100.0, 10.0), (20, 300.0, 15.0), (4, 8.0, 2.0)]
    run = {
        "values": [[11, 90.0, 8.0], [17, 310.0, 15.5], [4, 8.0, 2.0]], "halves": [[2, 5.0]] * 3, "ends": [[]] * 3,
        "cpu": [9.0, 9.0, 0.5], "setup_cpu": 1.0, "lines": 7, "version": "1",
    }  # fmt: skip
    found = row([run], truths)
    assert found.errors == pytest.approx([4 / 3, 20 / 3, 0.5])
    assert found.held[:2] == pytest.approx([2 / 3, 1 / 3]) and math.isnan(found.held[2])
    assert found.cpu == 0.5
    assert row([run], truths, common=2).errors == pytest.approx([4 / 3, 20 / 3, 1.25])
    assert row([{"failed": "no wheel"}], truths).failed == "no wheel"


def test_figures_are_short_where_dpsql_errs_more(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks.figures import Figures

    def told(part: Part) -> dict[str, object]:
        wrong = 3.0 if part.peer == "dpsql" else 1.0
        return {
            "values": [[1 + wrong, 1 + wrong, 1 + wrong]], "halves": [[]], "ends": [[]], "cpu": [1.0] * 3,
            "setup_cpu": 1.0, "lines": 1, "version": "1",
        }  # fmt: skip

    figures = Figures()
    judge({part: row([told(part)], [(1, 1.0, 1.0)]) for part in parts()}, figures)
    assert figures.finish() == 1
    assert capsys.readouterr().out.count(" ok\n") == 0


def test_where_an_error_that_grows_passes_one_that_stays() -> None:
    assert adult.crossing([10, 1000], [1.0, 100.0], [10.0, 10.0]) == pytest.approx(100)
    assert adult.crossing([10, 1000], [1.0, 2.0], [10.0, 10.0]) == math.inf
    assert adult.crossing([10, 1000], [20.0, 30.0], [10.0, 10.0]) == 10
    assert adult.crossing([10, 100, 1000, 10000], [20.0, 8.0, 12.5, 30.0], [10.0] * 4) == pytest.approx(
        316.2, 1e-3
    )


def test_a_model_that_was_never_behind_or_never_ended_is_told_so() -> None:
    def kept(*found: dict[str, object]) -> dict[str, object]:
        return {
            "sizes": [
                {"rows": 10 ** (i + 1), "dpsql": {"errors": [9.0, 11.0]}, "mst": each}
                for i, each in enumerate(found)
            ]
        }

    assert adult.told(kept({"error": 1.0}, {"error": 100.0}), "mst").endswith("from about 32 rows on")
    assert adult.told(kept({"error": 11.0}, {"error": 100.0}), "mst").endswith(
        "from the fewest rows tried, 10"
    )
    assert adult.told(kept({"error": 1.0}, {"error": 5.0}), "mst").endswith("not ahead of MST at 100 rows")
    assert adult.told(kept({"failed": "no answer"}), "mst") == "MST gave no answer"


def test_colours_of_the_plot_differ_in_grey() -> None:
    def lightness(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [((each + 0.055) / 1.055) ** 2.4 if each > 0.04045 else each / 12.92 for each in parts]
        return 116 * (0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]) ** (1 / 3) - 16

    shades = sorted(lightness(style["color"]) for style in LINES.values())
    assert shades[0] > 15 and shades[-1] < 80  # neither dpsql's black nor the paper
    assert all(b - a >= 10 for a, b in pairwise(shades))


def test_a_rectangle_counts_the_same_in_sql_and_in_its_table() -> None:
    import duckdb
    import numpy as np

    rng = np.random.default_rng(3)
    leaves = {column.name: rng.integers(0, len(column.starts), 400) for column in adult.COLUMNS}
    values = {
        c.name: np.array(c.starts, dtype=object if c.upper == 0 else np.int64)[leaves[c.name]]
        for c in adult.COLUMNS
    }
    tables = adult.pair_tables(leaves)
    with duckdb.connect() as db:
        db.register("person", values)
        for each in adult.rectangles()[::7]:
            assert db.execute(each.sql).fetchall()[0][0] == each.of(tables)
