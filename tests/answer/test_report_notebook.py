"""Answers in notebooks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import dpsql
from tests.interfaces_release import build

pytestmark = pytest.mark.usefixtures("publishes")


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dpsql.Connection]:
    with dpsql.connect(build(tmp_path_factory.mktemp("notebook"))) as opened:
        yield opened


def test_notebooks_show_margins(connection: dpsql.Connection) -> None:
    html = connection.execute("SELECT COUNT(*) AS n FROM sales").result._repr_html_()
    assert "<th>n</th>" in html
    assert re.search(r"<small>-\d+/\+\d+</small>", html)  # more rows may be missing than are too many
