"""Many views at once: the residual design against views that are measured one by one and then reconciled.

`python -m benchmarks.central.views` prints a table: mean predicted variance of a count over ranges on every set of axes
that a view covers (each axis of a view is asked half the time), at mu^2 1. Both columns are what planning itself
compares, with the integer rows that a release would draw; nothing is simulated.
"""

from __future__ import annotations

from itertools import combinations

from dpsql.engines.duck import RawSide
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.plan import plan_release
from dpsql.publishing.planned import ReleasePlan
from dpsql.star import parse_catalog

HEAD = """
dpsql: 1
name: views
privacy: {lineage: views, cap: 10, unit: row, epsilon: 1, delta: 1e-6}
tables:
  facts: {role: fact, columns: {"""
CASES = (
    ("one view of 2 axes", 2, (2,), 64),
    ("all pairs of 3 axes", 3, (2,), 64),
    ("all pairs of 6 axes", 6, (2,), 64),
    ("all single axes and pairs of 6", 6, (1, 2), 64),
    ("one view of 3 axes", 3, (3,), 32),
    ("all triples of 4 axes", 4, (3,), 32),
    ("all triples of 6 axes", 6, (3,), 32),
    ("all pairs of 6 axes", 6, (2,), 256),
)


def plan(axes: int, sizes: tuple[int, ...], leaves: int) -> ReleasePlan:
    """The plan of all views over some of the axes, measured together."""
    names = [f"a{i}" for i in range(axes)]
    columns = ", ".join(
        f"{name}: {{type: int, lower: 1, upper: {leaves}, out_of_domain: drop}}" for name in names
    )
    chosen = [each for size in sizes for each in combinations(names, size)]
    views = "\n".join(
        f"  {''.join(each)}: {{of: facts, axes: [{', '.join('facts.' + name for name in each)}], measures: [count], "
        f"mechanism: residual}}"
        for each in chosen
    )
    catalog = parse_catalog(f"{HEAD}{columns}}}}}\nviews:\n{views}\n", "views.yaml")
    return plan_release(catalog, axis_maker(catalog, RawSide(None, {})))  # type: ignore[arg-type]


def view_table() -> str:
    """One line for each case: errors of views measured one by one, and together."""
    lines = ["| views | leaves an axis | one by one | residual | ratio |", "|---|--:|--:|--:|--:|"]
    for label, axes, sizes, leaves in CASES:
        ((_, choice),) = plan(axes, sizes, leaves).chosen
        after, ((_, before),) = choice.expected_error, choice.runners_up
        lines.append(f"| {label} | {leaves} | {before:,.1f} | {after:,.1f} | {after / before:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(view_table())
