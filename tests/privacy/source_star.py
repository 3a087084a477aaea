"""A star of people and sales over any source, and its cells without noise: what tests of source values compare."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from dpsql.catalog import Catalog, load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.registry import Engine, open_engine
from dpsql.noise import ZeroNoise
from tests.strategies import declared_cells

KEY = bytes(range(1, 33))


class Cells(NamedTuple):
    """Exact cells of a table's statistics, and its sums with the middle of their bounds put back."""

    arrays: list[np.ndarray[Any, Any]]
    totals: dict[str, float]

    @property
    def rows(self) -> int:
        """Rows of the first view that count."""
        return int(self.arrays[0].sum())

    def distance(self, cells: Cells) -> int:
        """The largest L1 distance of two views."""
        pairs = zip(self.arrays, cells.arrays, strict=True)
        return max(int(np.abs(one - two).sum()) for one, two in pairs)


def star(
    folder: Path, source: dict[str, Any], *, unit: str = "row", max_ids: int = 1, **sales: Any
) -> Catalog:
    """A catalog of people and sales.

    Args:
        folder: where it is written.
        source: its `source`.
        unit: `row`, or `person.id`.
        max_ids: rows of a person that count.
        sales: keys of the table `sales` that differ.
    """
    fact: dict[str, Any] = {
        "role": "fact",
        "foreign_keys": {"person_id": "person"},
        "columns": {"amount": {"type": "decimal", "scale": 1, "lower": 0, "upper": 9, "measure": True}},
        **({"max_ids": max_ids, "bounding": "weight"} if unit != "row" else {}),
        **sales,
    }
    measures = ["count", *(f"sales.{name}" for name, c in fact["columns"].items() if c.get("measure"))]
    axes = [f"sales.{name}" for name, column in fact["columns"].items() if "measure" not in column]
    written = {
        "dpsql": 1,
        "name": "star",
        "source": source,
        "privacy": {"lineage": "star", "cap": 9, "unit": unit, "epsilon": 1, "delta": 0},
        "tables": {
            "person": {"role": "dimension", "key": "id", "private": True,
                       "columns": {"age": {"type": "int", "lower": 0, "upper": 9}}},
            "sales": fact,
        },
        "views": {"v": {"of": "sales", "axes": ["person.age", *axes], "measures": measures}},
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "star.yaml").write_text(yaml.safe_dump(written, sort_keys=False))
    return load_catalog(folder / "star.yaml")


def opened(catalog: Catalog) -> closing[Engine]:
    """The raw side of a catalog."""
    return closing(open_engine(catalog))


def cells(catalog: Catalog) -> Cells:
    """The exact cells of `sales`, in rows and units of its measures."""
    with opened(catalog) as engine:
        plan = plan_release(catalog, axis_maker(catalog, engine))
        prepare_tables(catalog, engine, plan)
        counted = declared_cells(OpenSource(catalog, engine, plan, ZeroNoise(), KEY), "sales")
        arrays = [np.asarray(each, np.int64) for each in counted.of(*plan.statistics)]
    one, totals = 1 if catalog.privacy.unit.name == "row" else 1 << 20, {}
    for statistic, array in zip(plan.statistics, arrays, strict=True):
        if statistic.bounds is not None:
            total = int(array.sum()) + statistic.bounds.mid * int(arrays[0].sum())
            totals[statistic.measure.name.column] = total / one / 10**statistic.bounds.scale
    return Cells([array // one for array in arrays], totals)
