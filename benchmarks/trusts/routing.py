"""A central release and the reports of some of the same people, opened together: what is routed, mixed and refused.

Fifty thousand customers, eighteen age groups. The central release is noisy on purpose; a part of the people report at
epsilon 4. Truths are about everybody. Each world has a population, a central draw and reporters of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

import dpsql
from dpsql.examples.retail import Columns, make_star, write_star
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.python.dbapi import connect

PEOPLE, SALES, LEVEL = 50_000, 100, 0.95
CENTRAL, LOCAL = "0.012", "4"
RANGES = (
    (18, 21), (18, 41), (22, 29), (26, 61), (30, 49), (38, 41), (42, 73), (50, 57), (58, 89), (66, 69), (74, 89),
)  # fmt: skip
_CATALOG = Path(__file__).parents[2] / "catalog" / "retail.yaml"
_GROUPS = "  people: {of: customer, axes: [{axis: customer.age, cuts: {width: 4}}], measures: [count]}\n"


class TwoTrusts(NamedTuple):
    """A central release of everybody, and the reports of some of them.

    Args:
        central, local: views of both, as catalogs write them.
        central_epsilon, local_epsilon: of both.
        people, sales: how many of each.
        part: of the people, who report.
        described: what descriptions say otherwise in the local catalog.
    """

    central: str = _GROUPS
    local: str = _GROUPS
    central_epsilon: str = CENTRAL
    local_epsilon: str = LOCAL
    people: int = PEOPLE
    sales: int = SALES
    part: float = 0.2
    described: Mapping[str, str] = MappingProxyType({})

    def publish(
        self, folder: Path, seed: int, weigh: Callable[[Columns], np.ndarray] | None = None
    ) -> Columns:
        """Release both into a folder; the people.

        Args:
            folder: where to.
            seed: of the population and of who reports.
            weigh: chances of the people to report; all alike without it.
        """
        star = make_star(seed, self.people, 20)
        star["sales"] = {column: values[: self.sales] for column, values in star["sales"].items()}
        people, rng = star["customer"], np.random.default_rng(seed)
        weight = weigh(people) if weigh else np.ones(self.people)
        few = rng.choice(self.people, round(self.part * self.people), replace=False, p=weight / weight.sum())
        write_star(folder / "data", star)
        write_star(folder / "asked", {**star, "customer": {c: v[few] for c, v in people.items()}})
        head = _CATALOG.read_text().split("views:")[0]
        head = head.replace("income: {type: int", "income: {type: int, measure: true")
        central = head.replace("name: retail", "name: central")
        central = central.replace("epsilon: 1.0", f"epsilon: {self.central_epsilon}")
        local = head.replace("name: retail", "name: local").replace("root: data", "root: asked")
        for there, here in self.described.items():
            local = local.replace(there, here)
        (folder / "central.yaml").write_text(f"{central}views:\n{self.central}")
        collection = f"collection: {{epsilon: {self.local_epsilon}, participation: random}}"
        (folder / "local.yaml").write_text(f"{local}{collection}\nviews:\n{self.local}")
        dpsql.publish(folder / "central.yaml", folder / "central.dpsql")
        dpsql.simulate(folder / "local.yaml", folder / "reports.parquet", folder / "plan.json", seed=seed)
        dpsql.collect(folder / "plan.json", folder / "reports.parquet", folder / "local.dpsql")
        return people


@contextmanager
def world(seed: int, *, young: bool = False) -> Iterator[tuple[Path, Columns]]:
    """A world in a folder that goes away; the young may report three times as often."""
    with tempfile.TemporaryDirectory() as place:
        weigh = (lambda people: np.where(people["age"] < 40, 3.0, 1.0)) if young else None
        yield Path(place), TwoTrusts().publish(Path(place), seed, weigh)


def opened(folder: Path, combine: bool) -> OpenReleases:
    """Both releases together."""
    return connect(folder / "central.dpsql", folder / "local.dpsql", combine=combine).session


def answers(session: OpenReleases, people: Columns) -> tuple[float, bool]:
    """The share of all ranges of one statement whose interval covers, and whether the reports were rejected."""
    counts = [f"COUNT(*) FILTER (WHERE age BETWEEN {a} AND {b})" for a, b in RANGES]
    result = session.query(f"SELECT {', '.join(counts)} FROM customer")
    low, high = (np.array(ends[0], np.float64) for ends in result.interval_rows(LEVEL))
    truth = np.array([float(((people["age"] >= a) & (people["age"] <= b)).sum()) for a, b in RANGES])
    tests = result.provenance["routed"]["tests"]
    return float(((low <= truth) & (truth <= high)).mean()), any(test["rejected"] for test in tests)
