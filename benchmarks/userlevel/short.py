"""Short tails: the bundled shop, published, and stars that nobody looked at against the best fixed bound.

    python -m benchmarks.userlevel.short [--published N] [--draws N] [--stars ..]

The shop of `make demo` is published with real noise and asked all questions of the demo. The four stars of
`stars.FURTHER` are simulated, and half-widths of their totals compared with an oracle's: the best fixed clip of the
star with 5% of the budget (9% of sums), its bias known and part of the width.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from math import sqrt
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures
from benchmarks.userlevel.measure import LAWS, Measured, Opened, cells, measure, open_case, tell
from benchmarks.userlevel.simulator import People, releases
from benchmarks.userlevel.stars import FURTHER, ROOT
from dpsql.examples import demo
from dpsql.examples.retail import make_star, write_star

TOTAL = 900.0
"""The widest half of the 95% interval of the shop's number of sales."""

COVERED = 92.0, 99.0
"""Percent of the shop's answers whose interval covers the exact one, over all publishes."""

CLASS_BAR, MEAN_BARS = 90.0, (93.0, 99.0)
HEAVIEST = {"tier", "tier range"}
"""Groups by how much their owner owns: rows that the low bound leaves out may all be in one of them, which only the
share of a group's rows could tell, and nothing released does. One such class of a star may cover less."""

SHORT_STARS = ("occupants", "scorecard")
ORACLE = {"1e-6": {"COUNT": 1.4, "SUM": 1.9}, "pure": {"COUNT": 1.4, "SUM": 2.3}}
"""Half-widths of totals over the oracle's on short tails, at most."""

SIDE = 1.96


def shop(folder: Path, published: int) -> tuple[list[float], list[bool]]:
    """Half-widths of the number of sales, and which of all answers cover, over so many publishes."""
    write_star(folder / "data", make_star(demo.SEED, 50_000, 2_000))
    raw = duckdb.connect()
    for table in ("customer", "product", "sales"):
        raw.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder / 'data' / table}.parquet'")
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
    steps = opened.star.plan.steps
    # statistics have what steps left; a step's part of the whole follows from its share
    whole = float(spend) / (1 - sum(float(step.charge) for step in steps) / charges(opened))
    unit = sqrt(2) / (whole * share / 100) if law.norm == 1 else 1 / sqrt(whole * share / 100)
    clips = np.unique(np.ceil(np.quantile(amounts, np.linspace(0.5, 1, 51))))
    halves = [np.maximum(amounts - clip, 0).sum() + SIDE * unit * clip for clip in clips]
    return float(100 * min(halves) / amounts.sum())


def charges(opened: Opened) -> float:
    """All that the table spends."""
    star = opened.star
    own = (s.charge for s in star.plan.row_statistics(star.of).values())
    return float(sum(own, Fraction(0)) + sum((step.charge for step in star.plan.steps), Fraction(0)))


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


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--published", type=int, default=100, help="releases of the shop")
    parser.add_argument("--draws", type=int, default=100, help="of noise, of each star and privacy")
    parser.add_argument("--stars", nargs="*", default=list(FURTHER), choices=FURTHER)
    parser.add_argument("--laws", nargs="+", default=["1e-6", "pure"], choices=LAWS)
    given, figures = parser.parse_args(), Figures()
    with tempfile.TemporaryDirectory() as folder:
        if given.published:
            halves, inside = shop(Path(folder), given.published)
            figures.at_most(f"userlevel shop, widest half of {len(halves)} totals, sales", max(halves), TOTAL)
            covered = 100 * float(np.mean(inside))
            figures.within(
                f"userlevel shop, % of answers covered, {len(halves)} publishes", covered, *COVERED
            )
        for name in given.stars:
            for law in given.laws:
                opened = open_case(name, law, Path(folder))
                measured = measure(opened, releases(opened.star, given.draws))
                tell(name, law, measured)
                judge(figures, name, law, measured)
                for aggregate, bound in ORACLE.get(law, {}).items() if name in SHORT_STARS else ():
                    ratio = measured.half(("total", aggregate)) / oracle(opened, aggregate)
                    figures.at_most(
                        f"userlevel {name} {law}, {aggregate} total over the oracle", ratio, bound
                    )
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
