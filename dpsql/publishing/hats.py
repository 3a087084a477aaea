"""Which views of two axes are measured by product hats, and what the comparison said.

A view gets them by asking, or under `auto` where they err less than a strategy for each axis. Such a view is a family
of its own: its variance is no sum of products, so it cannot be averaged with other views part by part. `auto` therefore
only looks at views that share no measure with another view of their table.

**Privacy**: a function of the catalog and of numbers of leaves, all public.
**Source**: docs/method/views.md, "Product hats".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod

from dpsql.catalog.graph import ResolvedAxis, max_ids, view_axes
from dpsql.catalog.measures import view_measures
from dpsql.catalog.model import Catalog
from dpsql.catalog.tables import AxisSpec
from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.choose import WHOLE
from dpsql.mechanisms.central.product_hats import LARGEST, SMALLEST, ProductHats, best_product_hats
from dpsql.mechanisms.family.measurement import Compared, Measurement
from dpsql.mechanisms.family.plane import Plane
from dpsql.mechanisms.family.product import PRODUCT, Product
from dpsql.mechanisms.law import LAPLACE
from dpsql.publishing.planned_axes import AxisPlanner
from dpsql.tree import Workload

HATS = "product_hats"
"""The catalog's word."""

Wanted = Sequence[tuple[ResolvedAxis, AxisSpec]]


def compare_together(catalog: Catalog, name: str, axes: AxisPlanner) -> Measurement:
    """Product hats against one strategy an axis, on a view that may have either.

    A view that names the mechanism is asked for rectangles alone. Under `auto` each axis is asked for as a whole half
    of the time, as the strategies of axes are judged (`choose.WHOLE`), and the smaller error wins.

    Args:
        catalog: a checked catalog.
        name: the view.
        axes: makes axes and strategies.

    Returns:
        What measures the view, with the comparison where there was a choice.

    Raises:
        CatalogError: the view names product hats and cannot have them.
    """
    view = catalog.views[name]
    wanted = list(zip(view_axes(catalog, view), view.axes, strict=True))
    named = view.mechanism == HATS
    if named:
        _check(catalog, name, [axes.axis(entry).leaves for entry, _ in wanted])
    elif view.mechanism != "auto" or not _may(catalog, name, wanted, axes):
        return PRODUCT
    whole = 0.0 if named else WHOLE
    hats, error = _best(wanted, axes, whole)
    apart = [axes.choice(entry, "auto", whole > 0, LAPLACE, spec) for entry, spec in wanted]
    other = (
        " x ".join(choice.name for choice in apart),
        2 * prod(choice.expected_error / 2 for choice in apart),
    )
    own = f"product hats of half-widths {' x '.join(map(str, hats.half_widths))}", error
    if named or error < other[1]:
        return Plane(hats, Compared(*own, (other,), whole))
    return Product(Compared(*other, (own,), whole))


def _check(catalog: Catalog, name: str, leaves: Sequence[int]) -> None:
    """Refuse product hats where they do not fit."""
    where, of = f"views.{name}.mechanism: {HATS}", catalog.views[name].of
    if len(leaves) != 2:
        raise CatalogError(
            f"{where} measures two axes together, not {len(leaves)}", hint="write auto, or leave two axes"
        )
    if catalog.privacy.delta != 0:
        raise CatalogError(f"{where} is for delta 0", hint="remove privacy.delta, or write auto")
    if max_ids(catalog, of) == "auto":
        raise CatalogError(
            f"{where} needs a declared number in max_ids of {of}", hint="write it, or auto here"
        )
    if not _fits(leaves):
        raise CatalogError(
            f"{where} takes axes of {SMALLEST} to {LARGEST} leaves, not {leaves[0]} x {leaves[1]}",
            hint="cut the axes wider or finer, or write auto",
        )


def _fits(leaves: Sequence[int]) -> bool:
    return len(leaves) == 2 and min(leaves) >= SMALLEST and max(leaves) <= LARGEST


def _may(catalog: Catalog, name: str, wanted: Wanted, axes: AxisPlanner) -> bool:
    """Whether `auto` may measure a view's axes together: a pure release, two short axes, no view to agree with."""
    view = catalog.views[name]
    if catalog.privacy.delta != 0 or catalog.stream is not None or max_ids(catalog, view.of) == "auto":
        return False
    if len(wanted) != 2 or not _fits([axes.axis(entry).leaves for entry, _ in wanted]):
        return False
    own = {measure.name for measure in view_measures(catalog, view)}
    others = [each for key, each in catalog.views.items() if key != name and each.of == view.of]
    return all(own.isdisjoint(measure.name for measure in view_measures(catalog, each)) for each in others)


def _best(wanted: Wanted, axes: AxisPlanner, whole: float) -> tuple[ProductHats, float]:
    (n1, n2), (first, second) = (
        [axes.axis(entry).leaves for entry, _ in wanted], [axes.workload(entry, spec) for entry, spec in wanted],
    )  # fmt: skip
    if first is None and second is None:
        return _best_for_all_ranges(n1, n2, whole)
    return _best_for(n1, n2, first, second, whole)


@lru_cache(maxsize=64)  # `dpsql plan --compare` plans the same views again and again
def _best_for_all_ranges(n1: int, n2: int, whole: float) -> tuple[ProductHats, float]:
    return _best_for(n1, n2, None, None, whole)


def _best_for(
    n1: int, n2: int, first: Workload | None, second: Workload | None, whole: float
) -> tuple[ProductHats, float]:
    return best_product_hats(n1, n2, first, second, whole)
