"""Reasons of the promised figures that are short, for benchmarks/results/figures.md."""

from __future__ import annotations

FLOOR = (
    "DuckDB 2's plain GROUP BYs of 1e7 facts take 1.0 CPU s; two of its optimizers that would undo a bound are off "
    "(counting by row 1.6 with them)"
)
BEYOND = "as by row; rows beyond the bound are counted in a second scan (1.0)"
LONG_BARS = "intervals are too long there, not too short"

REASONS: dict[str, str] = {
    "make test: CPU seconds": "19.5 to 33.7 minutes with the load of the machine; no few tests hold the difference",
    "make quick: CPU seconds": "170 beside another suite, 100 to 156 at other times",
    "counting by row, CPU over the plain GROUP BYs": FLOOR,
    "counting by weight, CPU over the plain GROUP BYs": BEYOND,
    "counting by truncate, CPU over the plain GROUP BYs": BEYOND,
    "repeated shape with errors, over DuckDB's kept sum": "4.01 and 4.14 in two runs",
    "a cold `dpsql query` over `import duckdb, numpy, sqlglot`": (
        "2.50 and 2.69 in two runs; pydantic, which reads the catalog inside of a release, is no part of the floor"
    ),
    "userlevel, % of intervals that cover less the bar": (
        "four of 119 cells miss the method's share less three points by .4 to 1; such a share of 200 releases errs by "
        "1.3 to 2.2"
    ),
    "hybrid, coverage": LONG_BARS,
    "composite coverage": LONG_BARS,
    "keys-step-cpu-over-plain-group-by": (
        "10 keys of a person count in place of 30, so nearly everybody here chooses; different pairs of person and key "
        "alone take 6"
    ),
    "unseen planes: default over the best of five": (
        "AG, a baseline, puts few even cells where rows lie smoothly; blocks are made for rows that lie in places"
    ),
    "LLE, coverage at 95%": (
        "at epsilon .5 falling columns are estimated with a bias that no interval holds; the flag says 82 to 99%"
    ),
}
"""Promise -> reason, without its worst cell."""
