"""Why a figure is short, for the page docs/figures.md: one line each, as long as it is."""

from __future__ import annotations

ONCE = "opendp adds integers of a histogram in memory; a statement of SQL is parsed, routed and given an interval"
FEW_CELLS = (
    "AG, a baseline, puts few even cells where rows lie smoothly; blocks are made for rows that lie in places"
)
LONG_BARS = "bars are longer than the errors there, not shorter"

LUCK = (
    "the method's share less three points, missed by .4 to 1; of 200 releases such a share errs by 1.3 to 2.2"
)

FLOOR = (
    "DuckDB 2's plain GROUP BYs of 1e7 facts take 1.0 CPU s; two of its optimizers that would undo a bound are off "
    "(counting by row 1.6 with them)"
)

BEYOND = "rows beyond the bound are counted (1.0)"

SLOW_DAY = "23.7 minutes; 33.7 in a slow hour, 19.5 at best: never 16, and no few tests hold the difference"

REASONS: dict[str, str] = {
    "make test: CPU seconds": SLOW_DAY,
    "counting by row, CPU over the plain GROUP BYs": FLOOR,
    "counting by weight, CPU over the plain GROUP BYs": f"{FLOOR}; a second scan: {BEYOND}",
    "counting by truncate, CPU over the plain GROUP BYs": f"{FLOOR}; a second scan: {BEYOND}",
    "million, the same with stderr and interval": "4.01 and 4.14 in two runs",
    "a cold `dpsql query` over `import duckdb, numpy, sqlglot`": (
        "2.50 and 2.69 in two runs; pydantic, which reads the catalog inside of a release, is no part of the floor"
    ),
    "make quick: CPU seconds": "170 beside another suite, 100 to 156 at other times",
    "userlevel nafld 0.3, tier, COUNT, 95% intervals hold %": LUCK,
    "userlevel flights 1e-6, total, COUNT, 95% intervals hold %": LUCK,
    "userlevel online_retail 1e-6, total, SUM, 95% intervals hold %": LUCK,
    "userlevel online_retail 1e-6, total, AVG, 95% intervals hold %": LUCK,
    "userlevel nafld, 8 publishes: answers within the simulator's 1 to 99%, %": (
        "only eight publishes, and the answers of one release err together"
    ),
    "hybrid, age 4 x month, epsilon 2: 95% intervals of COUNT(*) hold": LONG_BARS,
    "hybrid, age 4 x month, epsilon 1: 95% intervals of COUNT(*) hold": LONG_BARS,
    "hybrid, age 4 x month with sums, epsilon 2: 95% intervals of COUNT(*) hold": LONG_BARS,
    "hybrid, age 4 x month, 40% report: 95% intervals of COUNT(*) hold": LONG_BARS,
    "hybrid, age 4 x month, a block design: 95% intervals of COUNT(*) hold": LONG_BARS,
    "hybrid, FoodMart, income x month, weights: 95% intervals of COUNT(*) hold": LONG_BARS,
    "hybrid, FoodMart, income x month, weights: 95% intervals of SUM(store_sales) hold": LONG_BARS,
    "hybrid, FoodMart, income x month, weights: 95% intervals of AVG(store_sales) hold": LONG_BARS,
    "composite coverage, near zero, from above": LONG_BARS,
    "peers, CPU a question, repeated shapes, over the fastest peer's (opendp)": ONCE,
    "peers, CPU a question, new shapes, over the fastest peer's (opendp)": f"{ONCE}, and a new shape is planned",
    "planes within 15% of what the method's page reaches, of 21": (
        "LOAN-FUNDED-INCOME at .01 and .1, STROKE at .1 and 1, ADULT-2D at .01: rows lie along lines there, which "
        "blocks that are halved both ways follow slowly; AG alone is better in one of the five"
    ),
    "weather: temperature and humidity at 0.1: default over the best of five": FEW_CELLS,
    "batting: at bats and hits at 0.1: default over the best of five": FEW_CELLS,
    "keys-intervals-hold-at-most-near-the-threshold": "a thousandth above: intervals are too long there, not too short",
    "one axis, unseen columns, MSE by hierarchy + NNLS": (
        "the two columns of flights have .71 and .74; the other four .45 to .48"
    ),
    "LLE, laplace 0.5, 2, 150,000 people, 3 x 32, coverage at 95%": LONG_BARS,
    "LLE, laplace 0.5, 2, 150,000 people, 3 x 32, standard error by rms error": LONG_BARS,
    "LLE, normal 0.3, 4, 20,000 people, 3 x 32, coverage at 95%": LONG_BARS,
    "LLE, power 0.3, 0.5, 100,000 people, 4 x 16, coverage at 95%": (
        "at epsilon .5 falling columns are estimated with a bias that no bar has in it; the flag says 82 to 99%"
    ),
}
"""Figure -> reason."""
