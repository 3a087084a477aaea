"""The JSON Schema of a catalog, for editors that complete and check YAML.

python -m dpsql.catalog.schema docs/catalog.schema.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dpsql.catalog.model import Catalog

# Where a YAML author may write less than the whole mapping.
SHORTHANDS: dict[str, dict[str, Any]] = {
    "AxisSpec": {"type": "string", "description": "table.column, without `by` or `cuts`"},
    "ForeignKey": {"type": "string", "description": "the table, with on_missing: keep"},
    "Cuts": {"type": "array", "items": {"type": ["string", "number"]}, "minItems": 1},
}


def catalog_schema() -> dict[str, Any]:
    """The schema, shorthands included.

    Returns:
        A JSON Schema (draft 2020-12) as plain values.
    """
    schema = Catalog.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    for name, short in SHORTHANDS.items():
        definitions[name] = {"anyOf": [short, definitions[name]]}
    measures = definitions["View"]["properties"]["measures"]
    names = {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 1,
        "description": "names with equal shares",
    }
    definitions["View"]["properties"]["measures"] = {"anyOf": [names, measures]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "dpsql catalog", **schema}


def schema_text() -> str:
    """The schema as the text of the file that ships in ``docs``."""
    return json.dumps(catalog_schema(), indent=2, ensure_ascii=False, default=str) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(schema_text(), encoding="utf-8")
