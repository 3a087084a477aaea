"""Defects that once stood here, or could, each put back through a small seam: measurements must find them all.

A plant is what it breaks, the one attribute that is patched, and the measurement that finds it by a loss above its
claim, by something that no noise covers, or by a refusal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import duckdb
import numpy as np

from dpsql import engines
from dpsql.budget import Mu2
from dpsql.catalog import catalog, source
from dpsql.central import bounding, placed_rows
from dpsql.central.planned import Bounds
from dpsql.contributions import recipe, selection, statements
from dpsql.engines import values
from dpsql.engines.schema_union import SchemaGroup
from dpsql.errors import InternalError, PrivacyError
from dpsql.mechanisms import distribution
from dpsql.mechanisms.designs import adaptive
from dpsql.mechanisms.designs.workload_matrix import AskedRows
from dpsql.row_expressions.rowlocal import trusted_select
from dpsql.streams.plan import StreamPlan
from dpsql.streams.state import StreamState
from tests.privacy.csv_case import forgiving_reader
from tests.privacy.joints import by_name, windowed_source
from tests.privacy.loss import Loss
from tests.privacy.source_cases import (
    file_beside_folders,
    fractions_after_whole_amounts,
    rules_with,
    spelt_alike,
)


class Plant(NamedTuple):
    """A defect.

    Args:
        name: what is broken, in words.
        seam: module or class, and the attribute that is replaced.
        broken: what stands there instead, made from what stood there.
        measured: the measurement that finds it.
        refused: whether the catalog is refused where nothing is planted.
    """

    name: str
    seam: tuple[object, str]
    broken: Callable[..., object]
    measured: Callable[[Path], Loss]
    refused: bool = False


def by_the_first(read: Callable[..., list[SchemaGroup]]) -> Callable[..., list[SchemaGroup]]:
    """All files of a table are read by the schema of the first, which casts the others."""

    def members(
        connection: duckdb.DuckDBPyConnection, files: Sequence[Path], root: Path, folders: Sequence[str]
    ) -> list[SchemaGroup]:
        first = read(connection, files[:1], root, folders)[0]
        listed = ", ".join(f"'{file}'" for file in files)
        return [first._replace(relation=f"read_parquet([{listed}])", files=len(files))]

    return members


def all_or_none(read: Callable[..., list[SchemaGroup]]) -> Callable[..., list[SchemaGroup]]:
    """A file beside the folders takes their column away from all files."""

    def members(*where: object) -> list[SchemaGroup]:
        listed = read(*where)
        missing = {name for member in listed for name, value in member.folders.items() if value is None}
        return [
            member._replace(folders=dict(member.folders) | dict.fromkeys(missing & set(member.folders)))
            for member in listed
        ]

    return members


def doubled(units: np.ndarray) -> np.ndarray:
    """The smallest budgets are one level's."""
    return np.where(units == units.min(), 2 * units, units)


def true_signal(counts, epsilon, sensitivity, noise):  # type: ignore[no-untyped-def]
    """The true number of rows and of cells that are full."""
    clip = math.ceil(adaptive.CLIP * sensitivity / epsilon)
    return adaptive.Signal(np.array([counts.sum(), np.clip(counts, -clip, clip).sum()], np.int64), clip)


CHOSEN, CHOSEN_PURE = "bounds chosen from data, under a delta", "bounds chosen from data, pure, a count"
PLANTS = (
    Plant(
        "a SELECT over private rows is believed",
        (source, "checked_select"), lambda was: lambda text, arms: trusted_select(text),
        windowed_source, refused=True,
    ),
    Plant(  # the cap of a stream's life is asked of each batch alone
        "a person's batches are capped one by one",
        (StreamState, "admitted"),
        lambda was: lambda self, people, lifetime: np.ones(len(people), dtype=np.bool_),
        by_name("a stream"),
    ),
    Plant(
        "batches of a person are not counted",
        (StreamState, "count_people"), lambda was: lambda self, people, lifetime: None,
        by_name("a stream whose types change"),
    ),
    Plant(
        "a stream's noise covers one batch of a person",
        (StreamPlan, "price"), lambda was: property(lambda self: Fraction(1)), by_name("a stream"),
    ),
    Plant(  # joins fold what units keep apart
        "a collation leaves its database",
        (values, "TYPES"), lambda was: rules_with(values.DATABASE, "VARCHAR", "VARCHAR", "{x}"), spelt_alike,
    ),
    Plant(
        "a key that stands twice joins a row twice",
        (placed_rows, "JoinSide"), lambda was: lambda *given, once, **named: was(*given, once=False, **named),
        by_name("a campaign that stands twice"),
    ),
    Plant("the first file's schema is everybody's",
          (engines, "parquet_members"), by_the_first, fractions_after_whole_amounts),
    Plant("partitions are guessed from all files together",
          (engines, "parquet_members"), all_or_none, file_beside_folders),
    Plant("an open quote in a CSV file takes other lines along",
          (engines, "load_csv"), lambda was: forgiving_reader, by_name("a CSV line with an open quote")),
    Plant("a sum's noise is that of a count",
          (Bounds, "reach"), lambda was: property(lambda self: 1), by_name("a row")),
    Plant(
        "the noise of one level is halved",
        (distribution, "combine"), lambda was: lambda cap, axes: doubled(was(cap, axes)),
        by_name("shared keys, a tree"),
    ),
    Plant(
        "what being discrete costs is forgotten",
        (distribution, "gaussian_sigma2"), lambda was: lambda mu2, squared: was(mu2, squared) - distribution.SLACK,
        by_name("hundreds of rows, Gaussian cells"),
    ),
    Plant("weights add up to twice max_ids",
          (bounding, "RowWeighting"), lambda was: lambda tau: was(2 * tau),
          by_name("weighted rows over two axes")),
    Plant(
        "twice max_ids rows are kept",
        (bounding, "Sampled"), lambda was: lambda tau, coefficients: was(2 * tau, coefficients),
        by_name("rows beyond the bound are measured"),
    ),
    Plant(  # ten times as many rows of one person as noise covers
        "rows beyond the bound are counted further than noise covers",
        (bounding, "beyond_bound"), lambda was: lambda rows, tau, most, dialect: was(rows, tau, 10 * most, dialect),
        by_name("rows beyond the bound are measured"),
    ),
    Plant(
        "units far beyond the bound are in both numbers",
        (bounding, "beyond_bound"),
        lambda was: lambda rows, tau, most, dialect: was(rows, tau, most, dialect).replace("THEN 0", f"THEN {most}"),
        by_name("rows beyond the bound are measured"),
    ),
    Plant(
        "units far beyond the bound are counted twice",
        (bounding, "beyond_bound"),
        lambda was: lambda *given: was(*given).replace("THEN 1 ELSE 0", "THEN 2 ELSE 0"),
        by_name("rows beyond the bound are measured"),
    ),
    Plant(  # a unit counts once for each of its rows with a value beyond the bounds
        "units with values beyond bounds are counted row by row",
        (bounding, "units_beyond_bounds"),
        lambda was: lambda rows, measures, dialect: was(replace(rows, unit=None), measures, dialect),
        by_name("values beyond the bounds are measured"),
    ),
    Plant("a strategy is chosen by true numbers",
          (adaptive, "noisy_signal"), lambda was: true_signal, by_name("a noisy signal, then a tree")),
    Plant(
        "replacing costs as little as adding",
        (Mu2, "drawn"), lambda was: lambda self, charge, neighbours: charge,
        by_name("another person in her place, under a delta"),
    ),
    Plant("one row of a shared key is kept",
          (catalog, "is_own"), lambda was: lambda *_: False, by_name("shared keys, hers before everybody's")),
    Plant(  # bought rows say a smaller norm than they have, and their check is off
        "bought rows are twice as sensitive as they say",
        (AskedRows, "measure"), lambda was: lambda self, cells, strategies: 2 * was(self, cells, strategies),
        by_name("bought"),
    ),
    Plant(
        "views have the noise of rho = mu^2",
        (recipe, "whitened_draw"),
        lambda was: lambda table, whitening, clip, mu2: was(table, whitening, clip, 2 * mu2), by_name(CHOSEN),
    ),
    Plant("a total is clipped at twice its bound",
          (selection, "clipped_total"), lambda was: lambda *given: was(*given[:3], 2 * given[3]), by_name(CHOSEN)),
    Plant("a person stands in two bins",
          (selection, "people_per_bin"), lambda was: lambda *given: 2 * was(*given), by_name(CHOSEN)),
    Plant("weights leave twice the norm that noise covers",
          (statements, "make_weights"), lambda was: lambda *given: was(*given[:3], 4 * given[3]), by_name(CHOSEN)),
    Plant(
        "people count for twice the rows that Laplace noise covers",
        (statements, "make_pure_weights"), lambda was: lambda *given: was(*given[:3], 2 * given[3], *given[4:]),
        by_name(CHOSEN_PURE),
    ),
)  # fmt: skip


def planted() -> tuple[Plant, ...]:
    """Every plant."""
    return PLANTS


def is_found(plant: Plant, folder: Path) -> bool:
    """Whether the defect shows once it is put back."""
    where, attribute = plant.seam
    with mock.patch.object(where, attribute, plant.broken(getattr(where, attribute))):
        try:
            return plant.measured(folder).share > 1
        except (PrivacyError, InternalError):  # told apart without noise, or refused
            return True
