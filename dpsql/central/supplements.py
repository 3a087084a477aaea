"""Supplements of a catalog beside the curator's rows: entries of a list, each called where it is asked for.

A plain publish finds none of them asked for and calls none. A supplement takes part in every step of a publish:

    counted     the catalog of what the curator counts
    attach      the raw side gains what stands in no table
    planned     a part of the budget is set aside
    released    what was counted becomes what analysts ask

**Privacy**: a supplement that draws has lines in the plan, and draws each once.
"""

from __future__ import annotations

from typing import Protocol

from dpsql.catalog import Catalog
from dpsql.central.bounding import OpenSource
from dpsql.central.hybrid import ReportedColumns
from dpsql.central.planned import ReleasePlan
from dpsql.engines.engine import Engine
from dpsql.release.reports import ReportedMeta
from dpsql.release.write import ReleaseBuilder


class Supplement(Protocol):
    """One thing that a catalog may ask for."""

    def asked(self, catalog: Catalog) -> bool:
        """True if a catalog asks for it."""

    def counted(self, catalog: Catalog) -> Catalog:
        """Part that the curator counts."""

    def attach(self, catalog: Catalog, engine: Engine) -> list[ReportedMeta]:
        """Put it into the rows of the raw side.

        Args:
            catalog: as it was written.
            engine: the raw side of what is counted.

        Returns:
            What the release says of each part of it.

        Raises:
            SourceError: it is not there.
        """

    def planned(self, plan: ReleasePlan, counted: Catalog) -> ReleasePlan:
        """The plan with what it draws; charges add up to what they were."""

    def released(
        self, content: ReleaseBuilder, scan: OpenSource, catalog: Catalog, attached: list[ReportedMeta]
    ) -> ReleaseBuilder:
        """The release that analysts ask.

        Args:
            content: what was drawn of the counted catalog.
            scan: the release being made.
            catalog: as it was written.
            attached: what `attach` returned.

        **Privacy**: spends its own lines of the plan, each once.
        """


SUPPLEMENTS: tuple[Supplement, ...] = (ReportedColumns(),)


def asked_supplements(catalog: Catalog) -> list[Supplement]:
    """Those that a catalog asks for."""
    return [supplement for supplement in SUPPLEMENTS if supplement.asked(catalog)]


def counted_catalog(catalog: Catalog) -> Catalog:
    """Catalog of what the curator counts: the catalog itself where it asks for nothing else."""
    counted = catalog
    for supplement in asked_supplements(catalog):
        counted = supplement.counted(counted)
    return counted


def supplemented(plan: ReleasePlan, catalog: Catalog) -> ReleasePlan:
    """A plan with what supplements draw.

    Args:
        plan: of what is counted.
        catalog: as it was written, or what is counted of it.
    """
    for supplement in asked_supplements(catalog):
        plan = supplement.planned(plan, plan.catalog)
    return plan
