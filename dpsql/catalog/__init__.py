"""The catalog: what a curator says once about a star, its people and its budget. Public facts only.

`load_catalog` reads the YAML, `resolve_axis`, `view_measures` and `unit_path` say what names mean,
`spec_hash` names the specification.
"""

from dpsql.catalog.collection import Collection, JointGrid, joint_view
from dpsql.catalog.columns import Column, Cuts, Measure
from dpsql.catalog.graph import (
    Member,
    ResolvedAxis,
    UnitPath,
    ledger_path,
    max_ids,
    may_be_missing,
    paths_to,
    public_tables,
    reachable,
    resolve_axis,
    unit_path,
    view_axes,
)
from dpsql.catalog.load import catalog_from_json, load_catalog, parse_catalog
from dpsql.catalog.measures import ResolvedMeasure, view_measures
from dpsql.catalog.model import Catalog, Privacy, Stream, spec_hash
from dpsql.catalog.services import Service, service_shares
from dpsql.catalog.source import Source, expand
from dpsql.catalog.tables import AxisSpec, ForeignKey, Table, View

__all__ = [
    "AxisSpec",
    "Catalog",
    "Collection",
    "Column",
    "Cuts",
    "ForeignKey",
    "JointGrid",
    "Measure",
    "Member",
    "Privacy",
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
    "max_ids",
    "may_be_missing",
    "parse_catalog",
    "paths_to",
    "public_tables",
    "reachable",
    "resolve_axis",
    "service_shares",
    "spec_hash",
    "unit_path",
    "view_axes",
    "view_measures",
]
