"""How the budget of a table whose rows belong to people in uneven numbers is divided (`max_ids: auto`).

| step | share | what for |
|---|---|---|
| rows per unit | 2% | tau = q.5(n), tau_hi = 3 q.9(n) |
| sums per unit | 2%, split among measures | C = 3 q.9(S) |
| norms per unit | 2%, zCDP only | K = q.4(nu) |
| total rows | 5%, pure 7% | N_hi |
| total sums | 9%, pure 7%, split among measures | S_hi |
| views | what is left | weighted shapes, by the catalog's shares |
| rows by group | 5% for each view with `calibrate: per_group` | R_g |

Steps that a table does not need (no measure, a public number of rows, pure epsilon) leave their share to the views,
so the shares always add to 1.

**Privacy**: a function of the catalog. Every step has a ledger line of its own.
**Source**: docs/method/user_level.md, "Shares of the recipe".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.catalog.model import Catalog
from dpsql.errors import CatalogError
from dpsql.mechanisms.law import GAUSSIAN, NoiseLaw

if TYPE_CHECKING:
    from dpsql.publishing.planned import PlannedStatistic

SELECTION = Fraction(2, 100)
"""Of each noisy histogram."""

SCALE = Fraction(14, 100)
"""Of all totals with a high bound together."""

SCALE_ROWS = {1: Fraction(7, 100), 2: Fraction(5, 100)}
"""The part of the total of rows, by norm; sums get the rest, since S_hi sets the centre and so every SUM."""

GROUPS = Fraction(5, 100)
"""For each view that is calibrated by group: rows of each group with a high bound."""

LARGEST_REACH = 1 << 30
"""The farthest a value may lie from the middle of its bounds, in units of its scale."""

MOST_GROUPED = 4
"""Views of one table that may be calibrated by group."""

ROWS, SUMS, NORMS, TOTAL_ROWS, TOTAL_SUMS, GROUP_ROWS = (
    "rows per unit",
    "sums per unit",
    "norms per unit",
    "total rows",
    "total sums",
    "rows by group",
)


@dataclass(frozen=True)
class Step:
    """One draw of the recipe that is not a view.

    Args:
        of: the counted table.
        kind: one of the steps above.
        measure: `table.column` for the steps that are made once per measure, the view's name for groups, else empty.
        spend: what the noise is drawn for, in its own currency.
        charge: what the ledger is charged.
    """

    of: str
    kind: str
    measure: str
    spend: Fraction
    charge: Fraction

    @property
    def purpose(self) -> str:
        """What the ledger's line says."""
        return f"{self.of}: {self.kind}" + (f" of {self.measure}" if self.measure else "")


def recipe_shares(
    measures: Sequence[str], law: NoiseLaw, *, public_rows: bool, grouped: Sequence[str] = ()
) -> tuple[dict[tuple[str, str], Fraction], Fraction]:
    """The share of each step, and of the views together.

    Args:
        measures: names of the table's summed measures.
        law: the noise.
        public_rows: whether the number of rows may be told.
        grouped: names of the views that are calibrated by group.

    Returns:
        (share by (kind, measure), share of the views); together exactly 1.

    >>> steps, views = recipe_shares(["sales.amount"], GAUSSIAN, public_rows=False)
    >>> sum(steps.values()) + views, views
    (Fraction(1, 1), Fraction(4, 5))
    """
    steps = {(ROWS, ""): SELECTION}
    steps |= {(SUMS, name): SELECTION / len(measures) for name in measures}
    if law == GAUSSIAN:
        steps[NORMS, ""] = SELECTION
    if not public_rows:
        steps[TOTAL_ROWS, ""] = SCALE_ROWS[law.norm] if measures else SCALE
    left = SCALE if public_rows else SCALE - SCALE_ROWS[law.norm]
    steps |= {(TOTAL_SUMS, name): left / len(measures) for name in measures}
    steps |= {(GROUP_ROWS, view): GROUPS for view in grouped}
    return steps, 1 - sum(steps.values(), Fraction(0))


def divide(
    catalog: Catalog,
    of: str,
    statistics: Sequence[PlannedStatistic],
    buy: Callable[[Fraction, NoiseLaw], Fraction],
) -> tuple[list[Step], list[PlannedStatistic]]:
    """Take the recipe's steps out of the charges of one table's views; what is left is their shape.

    Args:
        catalog: the catalog.
        of: a table with `max_ids: auto`.
        statistics: all statistics of the release.
        buy: (charge, law) -> what it buys in the noise's own currency.

    Returns:
        (the steps, all statistics with those of the table reduced); charges add up to what they were.

    Raises:
        CatalogError: too many views are calibrated by group, or a measure is too wide.
    """
    mine = [s for s in statistics if s.of == of]
    grouped = _checked(of, mine)
    whole, law = sum((s.charge for s in mine), Fraction(0)), mine[0].law
    sums = list(dict.fromkeys(s.measure.name for s in mine if s.bounds is not None))
    shares, left = recipe_shares(sums, law, public_rows=catalog.privacy.rows == "public", grouped=grouped)
    steps = [
        Step(of, kind, measure, buy(whole * share, law), whole * share)
        for (kind, measure), share in shares.items()
    ]

    def reduced(s: PlannedStatistic) -> PlannedStatistic:
        charge = s.charge * left
        return replace(s, charge=charge, spend=buy(charge, law), shape=s.charge / whole)

    return steps, [reduced(s) if s.of == of else s for s in statistics]


def _checked(of: str, mine: Sequence[PlannedStatistic]) -> list[str]:
    """Refuse what weights cannot hold; returns the views that are calibrated by group."""
    wide = [s for s in mine if s.bounds is not None and s.bounds.reach > LARGEST_REACH]
    if wide:
        raise CatalogError(
            f"{wide[0].measure.name}: its bounds are too wide for weighted 64-bit sums at its scale",
            hint="narrow lower and upper, or lower its scale",
        )
    grouped = list(dict.fromkeys(s.view for s in mine if s.calibrated))
    if len(grouped) > MOST_GROUPED:
        raise CatalogError(
            f"views: {len(grouped)} views of {of} say `calibrate: per_group`, which costs 5% each",
            hint=f"keep it for {MOST_GROUPED} of them",
        )
    return grouped
