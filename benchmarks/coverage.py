"""Many releases of one star, and how often the intervals of their answers cover the exact values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpsql.catalog import Catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import DrawnRelease, OpenSource, draw_cells
from dpsql.central.content import release_content
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.registry import open_star
from dpsql.executor.engine import ReleaseEngine
from dpsql.mechanisms.distribution import NoisyRows
from dpsql.noise import Noise, ZeroNoise
from dpsql.release import open_release
from dpsql.results.result import Result
from tests.strategies import declared_cells

Publish = Callable[[Noise, str], ReleaseEngine]
"""Draws a release into a file of this name, and opens it."""
LEVEL = 0.95


def redrawn(catalog: Catalog, folder: Path) -> Publish:
    """Count a star once, and give a function that draws a release into a folder and opens it."""
    raw = open_star(catalog)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    prepare_tables(catalog, raw, plan)
    scan = OpenSource(catalog, raw, plan, ZeroNoise(), bytes(32))
    cells = {of: declared_cells(scan, of) for of in dict.fromkeys(s.of for s in plan.statistics)}

    def publish(noise: Noise, name: str) -> ReleaseEngine:
        views: dict[int, NoisyRows] = {}
        for of, counted in cells.items():
            views |= draw_cells(scan._replace(noise=noise), of, counted)
        drawn = DrawnRelease(plan, tuple(view for _, view in sorted(views.items())))
        path = folder / name
        release_content(drawn, name, insecure=True).write(path)
        return ReleaseEngine(open_release(path, insecure=True))

    return publish


def opened(releases: Iterable[ReleaseEngine]) -> Iterator[ReleaseEngine]:
    """Releases one after the other; each is closed and its file removed before the next."""
    for answerer in releases:
        yield answerer
        answerer.release.close()
        answerer.release.path.unlink()


def draws(publish: Publish, noise: Noise, number: int) -> Iterator[ReleaseEngine]:
    """So many releases by one source of noise."""
    return opened(publish(noise, f"{i}.dpsql") for i in range(number))


def covers(low: Any, truth: Any, high: Any) -> bool:
    """Whether an interval covers; an end that is None is open."""
    return (low is None or low <= truth) and (high is None or truth <= high)


def interval_cells(result: Result) -> Iterator[tuple[Sequence[Any], ...]]:
    """Each row of an answer with the ends of its 95% intervals."""
    return zip(result.rows, *result.interval_rows(LEVEL), strict=True)


def coverage(
    releases: Iterable[ReleaseEngine], asked: Mapping[str, str], truths: Mapping[str, Sequence[float]]
) -> dict[str, list[bool]]:
    """Whether the intervals of the last column cover, by statement; rows whose number is NULL are left out.

    Args:
        releases: what is asked.
        asked: statements by name.
        truths: exact numbers of their rows, in the order of the answer.
    """
    found: dict[str, list[bool]] = {name: [] for name in asked}
    for answerer in releases:
        for name, sql in asked.items():
            rows = zip(truths[name], interval_cells(answerer.query(sql)), strict=True)
            found[name] += [
                covers(low[-1], truth, high[-1]) for truth, (row, low, high) in rows if row[-1] is not None
            ]
    return found
