"""The tutorials and the walk run as they are printed, and print what they show."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import dpsql
from benchmarks.firsthour import readme
from docs.make_pictures import draw
from dpsql.examples.retail import CUSTOMERS, PRODUCTS, make_star, write_star
from tests.interfaces_release import build
from tests.pages import run_command, run_page, shape
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

DOCS = Path(__file__).parents[2] / "docs"


def test_the_curator_s_release_is_asked_by_the_analyst(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run_page(DOCS / "tutorial" / "curator.md", tmp_path) >= 8
    assert run_page(DOCS / "tutorial" / "analyst.md", tmp_path) >= 8


@pytest.mark.parametrize(
    ("page", "least"),
    by_default(
        [
            ("five-minutes.md", 5),
            ("tutorial/survey.md", 4),
            ("tutorial/stream.md", 8),
            ("how-it-works.md", 1),
            ("walk.md", 7),
            ("small-numbers.md", 3),
        ],
        1,
    ),
)
def test_a_page_runs_from_the_top(page: str, least: int, tmp_path: Path) -> None:
    assert run_page(DOCS / page, tmp_path) >= least


def test_shapes_forget_numbers_and_nothing_else() -> None:
    shown = (
        "region         n\n------  --------\nnorth   391 ± 18\nNULL     -4 ± 25 ?\n? = too noisy to tell\n"
    )
    assert shape(shown) == shape(shown.replace("391", "1 391").replace("------  -", "-----  ---"))
    assert shape(shown) != shape(shown.replace("north", "south"))
    assert shape(shown) != shape(shown.replace(" ± 18", ""))


def test_the_readme_s_lines_for_own_data_run(tmp_path: Path) -> None:
    """All but the two that make an environment, which `make bench TOPIC=firsthour` types."""
    write_star(tmp_path / "data", make_star(7, CUSTOMERS, PRODUCTS))
    editor = tmp_path / "editor"
    editor.write_text(readme.EDITOR)
    editor.chmod(0o755)
    *_, publish, query = lines = readme.lines()
    assert [line.split()[0] for line in lines] == ["python3", "pip", "dpsql", "$EDITOR", "dpsql", "dpsql"]
    run_command(lines[2], tmp_path)
    assert "confirm: true" in (tmp_path / "shop.yaml").read_text()
    subprocess.run([editor, tmp_path / "shop.yaml"], check=True)
    run_command(publish, tmp_path)
    assert shape(run_command(query, tmp_path)).count(" ± ") >= 8


def test_what_a_bare_environment_holds_is_not_counted(tmp_path: Path) -> None:
    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name, size in {
        "duckdb/a.so": 3_000_000,
        "duckdb/__pycache__/a.pyc": 9_000_000,
        "pip/x.py": 9_000_000,
    }.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_bytes(bytes(size))
    assert readme.megabytes(tmp_path) == 3


def test_the_picture_has_a_bar_a_month(tmp_path: Path) -> None:
    sql = "SELECT DATE_TRUNC('month', sold_on) AS month, COUNT(*) AS sales FROM sales GROUP BY month ORDER BY month"
    draw(dpsql.query(sql, release=build(tmp_path)), tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text()
    assert all(name in drawn for name in ("Jan", "Dec", "sales"))
