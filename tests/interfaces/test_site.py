"""A static site holds what the release prints, and nothing in it is markup of a release."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dpsql.errors import InterfaceError
from dpsql.federation.session import OpenReleases, open_session
from dpsql.interfaces.web.explore.answers import MOST_GROUP_ROWS, write_site
from dpsql.progress import silent
from dpsql.results.render import shown
from tests.interfaces_release import CATALOG, build

pytestmark = pytest.mark.usefixtures("publishes")
MARKUP = "</script><img src=x onerror=alert(1)>\u2028"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> OpenReleases:
    """A release whose description and categories are markup."""
    text = CATALOG.replace("population: shop-people", f"description: {json.dumps(MARKUP)}")
    return open_session(
        [
            build(
                tmp_path_factory.mktemp("site"),
                text=text.replace("[east, west]", f"[{json.dumps(MARKUP)}, west]"),
            )
        ]
    )


def test_every_answer_is_as_the_release_prints_it(hostile: OpenReleases, tmp_path: Path) -> None:
    written = write_site(hostile, tmp_path / "site", silent)
    text = (tmp_path / "site" / "data.js").read_text("utf-8")
    assert "<" not in text and "\u2028" not in text
    content = json.loads(re.fullmatch(r"const release = (.*);\n", text, re.DOTALL)[1])  # type: ignore[index]
    assert len(content["questions"]) == written["questions"] > 10
    assert written["bytes"] == sum(file.stat().st_size for file in (tmp_path / "site").iterdir()) < 1e6
    assert any(len(asked["by"]) == 2 for asked in content["questions"])
    for asked in content["questions"]:
        answer = hostile.query(asked["sql"])
        printed, below = shown(answer, 0.95, MOST_GROUP_ROWS)
        assert [[cell[0] for cell in row] for row in asked["rows"]] == [list(row) for row in printed]
        assert asked["below"] == list(below)
        low, high = answer.interval_rows(0.95)
        for r, row in enumerate(asked["rows"]):
            assert [tuple(cell[2:4]) for cell in row if len(cell) > 1] == [
                (low[r][c], high[r][c]) for c in answer.noisy if len(row[c]) > 1
            ]


def test_a_question_is_found_by_what_and_by(hostile: OpenReleases, tmp_path: Path) -> None:
    write_site(hostile, tmp_path / "site", silent)
    content = json.loads((tmp_path / "site" / "data.js").read_text("utf-8")[len("const release = ") : -2])
    keys = [(asked["what"], *sorted(asked["by"])) for asked in content["questions"]]
    assert len(set(keys)) == len(keys)
    for asked in content["questions"]:
        assert len(asked["columns"]) == len(asked["by"]) + 1


def test_a_folder_that_exists_is_not_touched(hostile: OpenReleases, tmp_path: Path) -> None:
    with pytest.raises(InterfaceError, match="exists"):
        write_site(hostile, tmp_path, silent)
    assert not list(tmp_path.iterdir())
