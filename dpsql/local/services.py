"""A collection by several services that cannot join on a device: K plans, one for each, and a sheet that names them.

Each service's plan is an ordinary collection plan with one view, the combinations of its axes' leaves (with the bit of
a measure that it knows), and its part of epsilon. Its devices (or the service itself, over its own records) answer it
as any plan, and send their report together with the person's pseudonym, the same at all services. The sheet is for the
collector alone.

Where a person may have several rows, one service holds them and is asked for one row and a bit for how many; the others
know one value of the person, which all of her rows share. Rows that two services hold cannot be matched by a pseudonym.

| here    | there                | unit |
|---------|----------------------|------|
| `share` | epsilon_k / epsilon  | the parts add up to 1 |
| `rows`  | R, the rows at which the bit is certain | a person with more counts as one with R |
| penalty | Var(product) / Var(one report joined on the device) | for half of every axis |

**Privacy**: docs/privacy/local.md section 2: the services' epsilons add up to the person's.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpsql.catalog.collection import service_shares
from dpsql.client.plan import Plan, View, largest_weight, read_plan
from dpsql.errors import CatalogError, DataError, OperationalError, PrivacyError
from dpsql.local.estimate import one_row_each
from dpsql.local.files import write_plan_file
from dpsql.local.forecast import Prediction
from dpsql.local.mechanisms.truncation import weighting_named
from dpsql.local.oracles import choose_oracle
from dpsql.local.plan import ONLY, CollectionDesign, ViewShare, canonical, checked, with_oracle
from dpsql.local.survey import Survey, design_of
from dpsql.local.tallies import layout_of, oracle_of

MOST_ITEMS = 4096
"""Most items of one service: a report of OUE has a bit for each."""
MOST_CELLS = 65_536
"""Most cells of a joined view, all of which are added up person by person."""
Positions = tuple[int, ...]


@dataclass(frozen=True)
class Sheet:
    """Collector's view of a collection by services.

    Args:
        collection: its identity.
        epsilon: of one person, over all services.
        plans: each service's plan.
        axes: positions of each service's axes in the survey, in its plan's order.
        measures: the position, in the survey, of the measure that a service tells.
        catalog: the catalog, as JSON.
        simulated: whether nobody is protected.
    """

    collection: str
    epsilon: Fraction
    plans: Mapping[str, Plan]
    axes: Mapping[str, Positions]
    measures: Mapping[str, int]
    catalog: Mapping[str, Any]
    simulated: bool = False

    @property
    def rows(self) -> int:
        """Rows of a person that count at most."""
        return max(plan.tau for plan in self.plans.values())

    def asked(self, held: Positions, measure: int | None = None) -> dict[str, Positions]:
        """The services that a view's answers need, each with the view's axes that it knows.

        Args:
            held: the view's axes.
            measure: None for counts, else the measure's position.
        """
        overlaps = {
            name: tuple(a for a in service_axes if a in held) for name, service_axes in self.axes.items()
        }
        return {
            name: overlap
            for name, overlap in overlaps.items()
            if overlap or one_row_each(self.plans[name]) or self.tells(name, measure)
        }

    def tells(self, name: str, measure: int | None) -> bool:
        """True if a service tells a measure."""
        return measure is not None and self.measures.get(name) == measure

    def score(self, name: str, measure: int | None) -> tuple[float, int, float]:
        """Score of one report of a service for a statistic.

        Returns:
            v, variance of one item's score; items of a cell that are added, or taken from each other; by how much an
            answer of everything is less noisy than its items: 1 where the scores of all cells add up to 1, 0 where
            items are taken from each other.
        """
        plan = self.plans[name]
        view, layout = plan.views[0], layout_of(plan.views[0])
        added = 1 if layout.bits is None else 2
        noise_saving = 0.0 if self.tells(name, measure) else added * view.cells / view.domain
        return oracle_of(plan, view).item_noise, added, noise_saving

    @property
    def leaves(self) -> dict[int, int]:
        return {
            a: planned.leaves
            for name, service_axes in self.axes.items()
            for a, planned in zip(service_axes, self.plans[name].axes, strict=True)
        }


def make_sheet(survey: Survey, label: str = "", simulated: bool = False) -> Sheet:
    """Plan a collection by services.

    Args:
        survey: of a catalog with `collection.services`.
        label: tells repeated collections of one catalog apart.
        simulated: whether to mark the plans as simulated.

    Raises:
        CatalogError: rows of a person at several services or at none, or a service or view with too many cells.
    """
    design = replace(design_of(survey, 1, label), simulated=simulated)
    collection = survey.collection
    shares, places = service_shares(collection), _places(survey)
    axes = {name: tuple(places[a] for a in s.axes) for name, s in sorted(collection.services.items())}
    names = [measure.name.column for measure in survey.measures]
    measures = {
        name: names.index(measure.column)
        for name, service in collection.services.items()
        for measure in service.measures
    }
    holder = _holder_of_rows(survey, axes)
    if holder is not None and set(measures) - {holder}:
        raise CatalogError(
            "a measure is a value of a row, and another service is to report it",
            hint=f"write it in the service that has the rows, `{holder}`",
        )
    declared = collection.row_bit_cap if isinstance(collection.row_bit_cap, int) else design.rows_cap
    one_row = replace(design, tau=1, rows_floor=1, row_weighting="none", row_share=Fraction(0), measures=())
    several = replace(one_row, tau=declared, rows_floor=0, row_weighting="bit")
    plans = {}
    for name, service_axes in axes.items():
        service_design = several if name == holder else one_row
        service_measures = (design.measures[measures[name]],) if name in measures else ()
        epsilon = design.epsilon * shares[name]
        plans[name] = _service_plan(
            replace(service_design, measures=service_measures, epsilon=epsilon), name, service_axes
        )
    for name, (view_axes, _) in survey.views.items():
        if int(np.prod([survey.axes[a].leaves for a in view_axes])) > MOST_CELLS:
            raise CatalogError(
                f"the view `{name}` has more than {MOST_CELLS} cells to join", hint="make its axes coarser"
            )
    return Sheet(design.collection, design.epsilon, plans, axes, measures, design.catalog or {}, simulated)


def _holder_of_rows(survey: Survey, axes: Mapping[str, Positions]) -> str | None:
    """The service that holds the rows of people who may have several; the others' axes belong to the person."""
    table = survey.catalog.star.tables[survey.of]
    if table.one_row:
        return None
    holders = [
        name
        for name, service_axes in axes.items()
        if not all(table.is_own(survey.resolved[a].path) for a in service_axes)
    ]
    if len(holders) != 1:
        raise CatalogError(
            f"{len(holders)} services have axes of the rows of `{survey.of}`, of which a person may have several "
            f"({', '.join(holders) or 'all axes belong to the person'})",
            hint="let one service have every axis of the rows, and the others axes of the person; or make the row "
            "the unit",
        )
    return holders[0]


def _places(survey: Survey) -> dict[str, int]:
    """The survey's position of every axis as the views write it."""
    places: dict[str, int] = {}
    for _, view in sorted(survey.catalog.star.views.items()):
        for written, axis in view.axes:
            place = survey.resolved.index(axis)
            if places.setdefault(written.axis, place) != place:
                raise CatalogError(
                    f"two views cut `{written.axis}` differently", hint="cut it alike everywhere"
                )
    return places


def _service_plan(design: CollectionDesign, name: str, axes: Positions) -> Plan:
    """One service's plan: the combinations of its axes' leaves, by the oracle of least variance."""
    service_design = replace(
        design,
        collection=f"{design.collection}:{name}",
        axes=tuple(design.axes[a] for a in axes),
        catalog=None,
        service=name,
    )
    if int(np.prod([a.leaves for a in service_design.axes])) > MOST_ITEMS:
        raise CatalogError(
            f"the service `{name}` has more than {MOST_ITEMS} items", hint="make its axes coarser"
        )
    edges = tuple(tuple(range(axis.leaves + 1)) for axis in service_design.axes)
    asks, measure = weighting_named(service_design.row_weighting).asks, 0 if service_design.measures else None
    view = ViewShare(View(asks, tuple(range(len(axes))), edges, measure=measure), Fraction(1))
    return read_plan(
        checked(
            service_design, [with_oracle(service_design, largest_weight(service_design.epsilon), view)], ONLY
        )
    )


def write_sheet(sheet: Sheet, target: Path) -> list[Path]:
    """Write each service's plan as `<name>.<service>.json`, then the sheet; returns the plans' paths.

    Raises:
        OperationalError: a file cannot be written, or holds another plan.
    """
    files = []
    for name, plan in sheet.plans.items():
        files.append(target.with_name(f"{target.stem}.{name}{target.suffix}"))
        write_plan_file(files[-1], plan.raw)
    body = {
        "dpsql_services": 1,
        "collection": sheet.collection,
        "epsilon": str(sheet.epsilon),
        "plans": {name: plan.raw.decode() for name, plan in sheet.plans.items()},
        "axes": {name: list(axes) for name, axes in sheet.axes.items()},
        "measures": dict(sheet.measures),
        "catalog": sheet.catalog,
        "simulated": sheet.simulated,
    }
    write_plan_file(target, canonical(body))
    return files


def read_sheet(path: Path) -> Sheet | None:
    """Read a sheet; None if the file is none (an ordinary plan, for instance).

    Raises:
        OperationalError: a damaged sheet.
        PrivacyError: services whose epsilons are more than the person's, or weights that cost more than they say.
    """
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(body, dict) or "dpsql_services" not in body:
        return None
    try:
        plans = {name: read_plan(text.encode()) for name, text in body["plans"].items()}
        axes = {name: tuple(body["axes"][name]) for name in plans}
        epsilon, measures = Fraction(body["epsilon"]), {name: int(m) for name, m in body["measures"].items()}
        facts = body["collection"], body["catalog"], body["simulated"]
    except (ValueError, KeyError, TypeError, AttributeError, DataError) as error:
        raise OperationalError(f"{path.name} is a damaged sheet of services", hint="make it again") from error
    if sum((plan.epsilon for plan in plans.values()), Fraction(0)) > epsilon:
        raise PrivacyError("the services spend more than the person's epsilon", hint="make the sheet again")
    return Sheet(facts[0], epsilon, plans, axes, measures, facts[1], facts[2])


def strengths(
    sheet: Sheet, held: Positions, people: int, measure: int | None = None
) -> dict[Positions, float]:
    """Variance factor of every part of a joined view, of people whose rows count once: exact for evenly spread ones.

    A box of leaf coverages u_a takes from axis a the share f_a = |u_a|/m_a = rest_a/m_a + spread_a, where rest_a =
    u'(I - J/m)u and spread_a = f_a^2. A service's score of it squares, in the mean, to v Q + F, with F = prod f_a and
    Q = items a cell x (prod m_a f_a - known x prod m_a spread_a); the variance of the product is people x (prod (v Q +
    F) - prod F), whose coefficients these are.

    Args:
        sheet: the collection.
        held: the view's axes.
        people: whose reports were joined.
        measure: None for counts, else the measure's position: its values in half-ranges.

    Returns:
        By positions inside `held`, for the models I - J/m of the axes. A total that is known exactly has none.
    """
    factors, leaves = dict[Positions, float](), sheet.leaves
    for width in range(len(held) + 1):
        for places in itertools.combinations(range(len(held)), width):
            subset = {held[i] for i in places}
            squared, truth = 1.0, 1.0
            for name, view in sheet.asked(held, measure).items():
                service_axes, (noise, items, known) = (
                    [a for a in view if a in subset],
                    sheet.score(name, measure),
                )
                even = 1 / float(np.prod([leaves[a] for a in service_axes]))
                others = [leaves[a] for a in sheet.axes[name] if a not in service_axes]
                squared *= noise * (math.prod(others) * items) * (1.0 if service_axes else 1 - known) + even
                truth *= even
            factors[places] = people * max(squared - truth, 0.0)
    return factors


def half_error(sheet: Sheet, held: Positions, people: int) -> float:
    """Predicted standard error, in rows, of half of every axis of a view."""
    squared, truth = 1.0, 1.0
    for name, service_axes in sheet.asked(held).items():
        share, (noise, items, known) = 0.5 ** len(service_axes), sheet.score(name, None)
        # the mean square of a person's score of a share of the cells, for evenly spread people
        squared *= noise * items * sheet.plans[name].views[0].cells * share * (1 - known * share) + share
        truth *= share
    return sheet.rows * float(np.sqrt(people * max(squared - truth, 0.0)))


def penalty(sheet: Sheet, held: Positions) -> float:
    """Variance of a view's half, over one report that is joined on the device with all of epsilon."""
    cells, share = int(np.prod([sheet.leaves[a] for a in held])), 0.5 ** len(held)
    joined = choose_oracle(cells, largest_weight(sheet.epsilon)).item_noise * cells * share * (1 - share)
    return half_error(sheet, held, 1) ** 2 / (joined * sheet.rows**2)


def predict_services(survey: Survey, sheet: Sheet, people: int) -> list[Prediction]:
    """Standard errors, in rows a person, of half of every axis and of every view that services answer together."""
    predictions = [
        Prediction(f"half of {axis.name}", half_error(sheet, (a,), people) / people)
        for a, axis in enumerate(survey.axes)
    ]
    for view_axes in sorted(
        {view_axes for view_axes, _ in survey.views.values() if len(sheet.asked(view_axes)) > 1}
    ):
        names = " and ".join(survey.axes[a].name for a in view_axes)
        times = penalty(sheet, view_axes)
        predictions.append(
            Prediction(
                f"half of each of {names} (WARNING: joined over {len(sheet.asked(view_axes))} services, "
                f"{times:,.0f} times the variance of one report joined on the device)",
                half_error(sheet, view_axes, people) / people,
            )
        )
    return predictions
