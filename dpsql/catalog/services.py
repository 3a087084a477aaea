"""`collection.services`: several services hold parts of a person's data, and no device holds them all.

Each service collects a report of its own about its axes, for its part of the person's epsilon. The collector joins the
reports by a pseudonymous id.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from typing import TYPE_CHECKING

from pydantic import Field

from dpsql.catalog.base import Model, Problem
from dpsql.catalog.scalars import Exact

if TYPE_CHECKING:
    from dpsql.catalog.collection import Collection
    from dpsql.catalog.model import Catalog

MOST_SERVICES = 8


class Service(Model):
    """One service: the axes that it can tell about, and its part of a person's epsilon."""

    axes: tuple[str, ...] = Field(
        description="as written in the views' `axes`", json_schema_extra={"minItems": 1}
    )
    share: Exact | None = Field(
        None, description="its part of epsilon; without shares every service gets the same"
    )


def service_shares(collection: Collection) -> dict[str, Fraction]:
    """Every service's part of a person's epsilon; the parts add up to 1."""
    even = Fraction(1, max(len(collection.services), 1))
    return {name: even if s.share is None else s.share for name, s in collection.services.items()}


def check_services(catalog: Catalog) -> None:
    """Refuse services that do not divide the views' axes and epsilon between them.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    collection = catalog.collection
    if collection is None or not collection.services:
        return
    at = ("collection", "services")
    if not 2 <= len(collection.services) <= MOST_SERVICES:
        raise Problem(at, f"there are 2 to {MOST_SERVICES} services; with one, leave `services` out")
    odd = [name for name in collection.services if not re.fullmatch(r"[A-Za-z0-9_]{1,40}", name)]
    if odd:
        raise Problem(
            (*at, odd[0]), "a name is 1 to 40 letters, digits and underscores; it names a plan file"
        )
    _check_axes(catalog, collection)
    given = [s.share for s in collection.services.values() if s.share is not None]
    if given and (len(given) != len(collection.services) or min(given) <= 0 or sum(given) != 1):
        raise Problem(at, "give every service a `share` above 0, adding up to 1, or none of them")
    plain = collection.joint or collection.shares or collection.shuffled or collection.row_guess
    if plain or collection.tau != 1 or collection.counted_share:
        raise Problem(
            at, "services ask one question each about one row a person; write `epsilon` and `services` alone"
        )


def _check_axes(catalog: Catalog, collection: Collection) -> None:
    """Every axis of every view stands in exactly one service; views ask for counts alone."""
    at = ("collection", "services")
    held = Counter(axis for service in collection.services.values() for axis in service.axes)
    asked = {axis.axis for view in catalog.views.values() for axis in view.axes}
    for name, service in collection.services.items():
        if not service.axes:
            raise Problem((*at, name, "axes"), "a service without an axis asks nothing; leave it out")
    for axis in sorted(asked | set(held)):
        if axis not in asked:
            raise Problem(at, f"no view has the axis `{axis}`; write axes as in the views")
        if held[axis] != 1:
            raise Problem(at, f"`{axis}` stands in {held[axis]} services; each axis belongs to exactly one")
    for name, view in catalog.views.items():
        if any(measure != "count" for measure in view.measures):
            raise Problem(("views", name, "measures"), "services tell counts alone; write measures: [count]")
