"""The catalog: what a curator says once about a star, its people and its budget. Public facts only.

`load_catalog` reads the YAML, `resolve_axis`, `view_measures` and `unit_path` say what names mean,
`spec_hash` names the specification.
"""

from dpsql.catalog.catalog import (
    Catalog,
    catalog_from_json,
    load_catalog,
    made_view,
    parse_catalog,
    spec_hash,
)
from dpsql.catalog.collection import Collection, JointGrid, Service, service_shares
from dpsql.catalog.columns import Column, Cuts
from dpsql.catalog.graph import (
    PublicColumn,
    ResolvedAxis,
    ResolvedMeasure,
    UnitPath,
    joint_view,
    ledger_path,
    max_ids,
    may_be_missing,
    paths_to,
    reachable,
    resolve_axis,
    unit_path,
    view_axes,
    view_measures,
)
from dpsql.catalog.model import AxisSpec, Privacy, Stream, View
from dpsql.catalog.source import Source, expand
from dpsql.catalog.tables import ForeignKey, Measure, Table

__all__ = [
    "AxisSpec",
    "Catalog",
    "Collection",
    "Column",
    "Cuts",
    "ForeignKey",
    "JointGrid",
    "Measure",
    "Privacy",
    "PublicColumn",
    "ResolvedAxis",
    "ResolvedMeasure",
    "Service",
    "Source",
    "Stream",
    "Table",
    "UnitPath",
    "View",
    "catalog_from_json",
    "expand",
    "joint_view",
    "ledger_path",
    "load_catalog",
    "made_view",
    "max_ids",
    "may_be_missing",
    "parse_catalog",
    "paths_to",
    "reachable",
    "resolve_axis",
    "service_shares",
    "spec_hash",
    "unit_path",
    "view_axes",
    "view_measures",
]
