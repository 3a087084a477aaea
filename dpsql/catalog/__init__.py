"""The catalog: what a curator says once about a star, its people and its budget. Public facts only.

`load_catalog` reads the YAML and `spec_hash` names the specification; `dpsql.catalog.graph` says what names mean.
"""

from dpsql.catalog.catalog import (
    Catalog,
    catalog_from_json,
    load_catalog,
    made_view,
    parse_catalog,
    spec_hash,
)

__all__ = ["Catalog", "catalog_from_json", "load_catalog", "made_view", "parse_catalog", "spec_hash"]
