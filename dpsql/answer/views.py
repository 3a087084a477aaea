"""What can be asked of a release, and how well: `SHOW VIEWS`, or `information_schema.dp_views`.

| column | says |
|---|---|
| view_name, table_name | the view, and the table whose rows it counts |
| axes, measures | what may stand in WHERE and GROUP BY together, and what is counted and summed |
| cells | how many combinations of leaves it holds |
| error_total | standard error of COUNT(*) over all of the view |
| error_half | the same over the middle half of every axis at once |

Errors are those of the noise, in rows (or people); NULL where a view counts nothing, and where an answer's error is
known only once it is asked.

**Privacy**: follows from the catalog and published variances.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from dpsql.answer.schema import Listing, Schema, information_tables
from dpsql.release import Release, StatisticMeta
from dpsql.star.graph import PEOPLE
from dpsql.tree import FloatArray

NAME = "dp_views"
SHOW = re.compile(r"\s*+show\s++views\s*+;?\s*+", re.IGNORECASE)
STATEMENT = f"SELECT * FROM information_schema.{NAME} ORDER BY table_name, cells, view_name"
COUNTS = ("count", PEOPLE)


class ViewRow(NamedTuple):
    """A row of the listing, as the table above says."""

    view_name: str
    table_name: str
    axes: str
    measures: str
    cells: int
    error_total: float | None
    error_half: float | None


VIEWS = {NAME: ViewRow._fields}
"""Its name and columns."""
TYPES = ("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR", "BIGINT", "DOUBLE", "DOUBLE")


def shown(text: str) -> str:
    """The statement that `SHOW VIEWS` stands for; any other text as it is.

    >>> shown("show views;")
    'SELECT * FROM information_schema.dp_views ORDER BY table_name, cells, view_name'
    >>> shown("SELECT 1")
    'SELECT 1'
    """
    return STATEMENT if SHOW.fullmatch(text) else text


def list_views(release: Release) -> list[ViewRow]:
    """The views of a release, with the error to expect of each.

    Args:
        release: an open release.
    """
    names = dict.fromkeys(s.view for s in release.statistics if release.declares(s.view))
    return [_row(release, name, [s for s in release.statistics if s.view == name]) for name in names]


def listings(release: Release, schema: Schema) -> list[Listing]:
    """The tables of information_schema: those that other engines have too, and the views."""
    rows = list_views(release)
    columns = tuple([row[i] for row in rows] for i in range(len(TYPES)))
    return [*information_tables(schema), Listing(f"dp_{NAME}", ViewRow._fields, TYPES, columns)]


def _row(release: Release, name: str, statistics: list[StatisticMeta]) -> ViewRow:
    first = statistics[0]
    axes, leaves = [release.axes[axis] for axis in first.axes], [release.axes[a].leaves for a in first.axes]
    counted = next((s for s in statistics if s.measure in COUNTS), None)
    whole = [np.ones((1, n)) for n in leaves]
    half = [np.ones((1, n)) if n < 4 else _middle(n) for n in leaves]
    return ViewRow(
        name, first.of, ", ".join(axis.name for axis in axes), ", ".join(s.measure for s in statistics), first.cells,
        _error(release, counted, whole), _error(release, counted, half),
    )  # fmt: skip


def _middle(leaves: int) -> FloatArray:
    """The mask of the middle half."""
    mask = np.zeros((1, leaves))
    mask[:, leaves // 4 : leaves - leaves // 4] = 1
    return mask


def _error(
    release: Release,
    counted: StatisticMeta | None,
    masks: list[FloatArray],
) -> float | None:
    if counted is None:
        return None
    variance = float(release.reading(counted.id).covariance(masks).noise[0])
    return float(np.sqrt(variance)) if variance > 0 else None
