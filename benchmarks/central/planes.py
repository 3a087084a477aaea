"""Two axes, pure: what a release measured by product hats says of itself, and what `auto` takes, by size of the plane.

Everything is asked of `dpsql`'s own planning, for a catalog with one view of two axes: no function here computes an
error. Run `python -m benchmarks.central.planes` for the table.
"""

from __future__ import annotations

from dpsql.curate.dry import Priced, priced_plan
from dpsql.curate.forecast import forecast
from dpsql.mechanisms.family.question import FamilyChoice
from dpsql.publishing.axes import axis_maker, open_public
from dpsql.star import parse_catalog

SIZES = (5, 6, 7, 8, 16, 32, 48, 64, 96)

PLANE = """
dpsql: 1
name: plane
privacy: {{lineage: plane, cap: 1, unit: row, epsilon: 1.0, delta: 0}}
tables:
  hits: {{role: fact, columns: {{
    x: {{type: int, lower: 1, upper: {n}, out_of_domain: drop}},
    y: {{type: int, lower: 1, upper: {n}, out_of_domain: drop}}}}}}
views:
  plane: {{of: hits, axes: [hits.x, hits.y], measures: [count], mechanism: {mechanism}}}
"""


def published_plane(n: int, mechanism: str) -> float:
    """Mean squared error of a random rectangle on the release of an n x n plane at epsilon 1.

    It is what `dpsql plan` says and what the published file states: integer budgets and discrete noise included.
    """
    (planned,) = forecast(_priced(n, mechanism))
    return planned.typical**2


def compared(n: int, mechanism: str) -> FamilyChoice:
    """What was compared for the plane: `product_hats` asks for rectangles, `auto` also for whole axes."""
    choice = _priced(n, mechanism).plan.compared("plane")
    assert choice is not None, "a plane of this size has no choice"
    return choice


def _priced(n: int, mechanism: str) -> Priced:
    catalog = parse_catalog(PLANE.format(n=n, mechanism=mechanism))
    public = open_public(catalog)
    try:
        return priced_plan(catalog, axis_maker(catalog, public))
    finally:
        public.close()


def plane_table() -> str:
    """One line for each size: errors over rectangles, then with whole axes half of the time, then the choice."""
    head = (
        "plane", "product hats", "axis by axis", "product hats, whole axes too", "axis by axis, whole axes too", "auto",
    )  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" + "|--:" * 4 + "|---|"]
    for n in SIZES:
        asked, auto = compared(n, "product_hats"), compared(n, "auto")
        errors = [auto.expected_error, auto.runners_up[0][1]]
        together = auto.name.startswith("product hats")
        hats, apart = errors if together else reversed(errors)
        values = (published_plane(n, "product_hats"), asked.runners_up[0][1], hats, apart)
        taken = "product hats" if together else "axis by axis"
        lines.append(f"| {n} x {n} | " + " | ".join(f"{value:.1f}" for value in values) + f" | {taken} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(plane_table())
