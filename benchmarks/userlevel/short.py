"""Short tails: the bundled shop, published, and stars that nobody looked at against the best fixed bound.

The shop of `make demo` is published with real noise and asked all questions of the demo. The four stars of
`stars.FURTHER` are simulated, and half-widths compared with an oracle's, whose bias is known and part of the width: of
totals the best fixed clip of the star with 5% of the budget (9% of sums), of groups the best of ten bounds of the norm
with 95%, as they are or scaled by the exact total.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import sqrt
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures, main
from benchmarks.userlevel.measure import Measured, Opened, cells, measured_stars
from benchmarks.userlevel.questions import read
from benchmarks.userlevel.simulator import People, Weighted, simulated
from benchmarks.userlevel.stars import FURTHER, ROOT
from dpsql.central.placed_rows import row_value
from dpsql.contributions.recipe import pure_reach, reconcile_views
from dpsql.contributions.statements import UNIT
from dpsql.examples import demo
from dpsql.examples.retail import make_star, write_star
from dpsql.tree import FloatArray
from tests.releases import plain_tables

TOTAL = 900.0
"""The widest half of the 95% interval of the shop's number of sales."""

COVERED = 92.0, 99.0
"""Percent of the shop's answers whose interval covers the exact one, over all publishes."""

CLASS_BAR, MEAN_BARS = 90.0, (93.0, 99.0)
HEAVIEST = {"tier", "tier range"}
"""Groups by how much their owner owns: rows that the low bound leaves out may all be in one of them, which only the
share of a group's rows could tell, and nothing released does. One such class of a star may cover less."""

SHORT_STARS = ("occupants", "scorecard")
ORACLE = {
    "1e-6": {"COUNT": 1.4, "SUM": 1.9, "groups": 2.0},
    "pure": {"COUNT": 1.4, "SUM": 2.3, "groups": 2.2},
}
"""Half-widths of totals, and of the rows of groups, over the oracle's on short tails, at most. The method
reaches them in the geometric mean of ten stars."""

WIDER = "userlevel short tails, half-width over the oracle's"

CLIPPED, VIEWS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0), 0.95
"""Quantiles of people that the oracle of groups bounds at, and its views' part of the budget."""

SIDE = 1.96


def shop(folder: Path, published: int) -> tuple[list[float], list[bool]]:
    """Half-widths of the number of sales, and which of all answers cover, over so many publishes."""
    write_star(folder / "data", make_star(demo.SEED, 50_000, 2_000))
    raw = plain_tables(folder / "data")
    file, halves, inside = folder / demo.CATALOG.name, list[float](), list[bool]()
    text = (ROOT / demo.CATALOG).read_text(encoding="utf-8")
    file.write_text(text.replace("cap: 4.0", "cap: 10000"), encoding="utf-8")
    for number in range(published):
        release = folder / f"{number}.dpsql"
        dpsql.publish(file, release, new_ledger=not number)
        for title, sql in demo.QUESTIONS.items():
            found = list(answers(dpsql.query(sql, release=str(release)), raw, sql))
            inside += [low <= true <= high for low, true, high in found]
            if title == "How many sales were there?":
                halves += [(high - low) / 2 for low, _, high in found]
        release.unlink()
    return halves, inside


def answers(
    answer: dpsql.Result, raw: duckdb.DuckDBPyConnection, sql: str
) -> Iterator[tuple[float, float, float]]:
    """Low end, exact value and high end of each number of an answer."""
    low, high = answer.interval_rows(demo.LEVEL)
    exact = {demo._key(row, answer): row for row in raw.execute(sql).fetchall()}
    for r, row in enumerate(answer.rows):
        true = exact.get(demo._key(row, answer))
        for c in answer.noisy:
            ends = low[r][c], high[r][c]
            if true is not None and None not in ends:
                yield float(ends[0]), float(true[c]), float(ends[1])


def oracle(opened: Opened, aggregate: str) -> float:
    """Half of the narrowest interval of a total by one fixed clip, relative, in percent."""
    people, table = People(opened.star), opened.star.plan.row_statistics(opened.star.of)
    amounts = (people.owned if aggregate == "COUNT" else people.sums).astype(np.float64)
    spend, share = sum((s.spend for s in table.values()), Fraction(0)), 5 if aggregate == "COUNT" else 9
    law = next(iter(table.values())).law
    # statistics have what steps left; a step's part of the whole follows from its share
    whole = float(spend) / views_share(opened)
    unit = sqrt(2) / (whole * share / 100) if law.norm == 1 else 1 / sqrt(whole * share / 100)
    clips = np.unique(np.ceil(np.quantile(amounts, np.linspace(0.5, 1, 51))))
    halves = [np.maximum(amounts - clip, 0).sum() + SIDE * unit * clip for clip in clips]
    return float(100 * min(halves) / amounts.sum())


def views_share(opened: Opened) -> float:
    """The views' part of all that the table spends."""
    star = opened.star
    views = sum((s.charge for s in star.plan.row_statistics(star.of).values()), Fraction(0))
    steps = sum((step.charge for step in star.plan.steps), Fraction(0))
    return float(views / (views + steps))


def groups_oracle(opened: Opened) -> float:
    """Median half-width of the rows of groups by the best fixed bound of the norm, relative, in percent."""
    people = People(opened.star)
    with simulated(people) as star:
        drawn, taken = star.release(1).drawn, people.clip
    views, plan = reconcile_views(star.plan, drawn.views), drawn.statistics
    pure, spare = next(iter(plan.values())).law.norm == 1, views_share(opened) / VIEWS
    summed = next(s for s in plan.values() if s.bounds is not None)
    halves, rows = list[float](), {s.view: i for i, s in plan.items() if s.measure.name == "count"}
    clips = np.quantile(people.owned if pure else people.norm, CLIPPED, method="inverted_cdf")
    for clip in clips.astype(int):
        if pure:
            bound = row_value(summed, opened.star.columns), pure_reach(summed, int(clip))
            people.make_pure_weights("", "", int(clip), [bound])
        else:
            people.make_weights("", "", int(clip))
        noise = clip / taken * spare if pure else sqrt(clip / taken * spare)
        scale, ends = people.owned.sum() * UNIT / (people.owned @ people.weight), list[FloatArray]()
        for asked in opened.questions():
            group = np.array([kind == "group" for kind in asked.kinds])
            masks, true = tuple(mask[group] for mask in asked.masks), asked.right["COUNT"][group]
            if group.any():
                index = rows[asked.view]
                (cells,) = Weighted(people, people.weight).of(plan[index])
                sd = noise * np.sqrt(views.readings[index].covariance(masks).noise)
                count = read(cells / UNIT, masks)
                ends += [[np.abs(true - r * count) + SIDE * r * sd for r in (1, scale)] / true]
        halves += np.median(np.concatenate(ends, axis=1), axis=1).tolist()
    return 100 * min(halves)


def judge(figures: Figures, star: str, law: str, measured: Measured) -> None:
    """Coverage of every class of a star."""
    shares = {(kind, name): measured.share((kind, name)) for kind, name in cells(measured)}
    low = {cell: share for cell, share in shares.items() if share < CLASS_BAR}
    named = [f"{kind} {name} {share:.0f}%" for (kind, name), share in sorted(low.items())]
    print(f"told   userlevel {star} {law}, classes below {CLASS_BAR:.0f}%: {named}", flush=True)
    kinds = {kind for kind, _ in low}
    figures.at_most("userlevel further stars, classes that cover too few", len(kinds), 1, f"{star} {law}")
    figures.at_most(
        "the same, not of groups that the heaviest own", len(kinds - HEAVIEST), 0, f"{star} {law}"
    )
    mean = float(np.mean(list(shares.values())))
    figures.within("userlevel further stars, mean coverage of classes, %", mean, *MEAN_BARS, f"{star} {law}")


def figures_of(
    figures: Figures,
    folder: Path,
    *,
    published: int = 100,
    draws: int = 100,
    stars: Sequence[str] = FURTHER,
    laws: Sequence[str] = ("1e-6", "pure"),
) -> None:
    """Publish the shop so often, and draw the noise of each star and privacy."""
    if published:
        halves, inside = shop(folder, published)
        figures.at_most(f"userlevel shop, widest half of {len(halves)} totals, sales", max(halves), TOTAL)
        covered, words = 100 * float(np.mean(inside)), f"{len(halves)} publishes"
        figures.within(f"userlevel shop, % of answers covered, {words}", covered, *COVERED)
    for name, law, opened, measured in measured_stars(stars, laws, draws, folder):
        judge(figures, name, law, measured)
        for what, bound in ORACLE.get(law, {}).items() if name in SHORT_STARS else ():
            cell = ("group", "COUNT") if what == "groups" else ("total", what)
            least = groups_oracle(opened) if what == "groups" else oracle(opened, what)
            figures.at_most(WIDER, measured.half(cell) / least, bound, f"{name} {law}, {what}")


if __name__ == "__main__":
    main(figures_of)
