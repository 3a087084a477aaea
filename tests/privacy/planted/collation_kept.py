"""Texts of a DuckDB file keep their collation, and joins fold what units keep apart."""

from dpsql.engines import values
from tests.privacy.plant import Plant
from tests.privacy.source_cases import rules_with, spelt_alike

PLANT = Plant(
    "a collation leaves its database",
    (values, "TYPES"),
    lambda was: rules_with(values.DATABASE, "VARCHAR", "VARCHAR", "{x}"),
    spelt_alike,
)
