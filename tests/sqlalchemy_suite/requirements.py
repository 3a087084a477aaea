"""What the suite may ask of a read-only dialect whose tables keep no keys of their own."""

from __future__ import annotations

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

CLOSED = (
    *(
        "autoincrement_insert",
        "implements_get_lastrowid",
        "insert_returning",
        "returning",
        "update_returning",
    ),
    *("delete_returning", "temp_table_reflection", "temporary_tables", "views", "sequences", "foreign_keys"),
    *("index_reflection", "unique_constraint_reflection", "check_constraint_reflection", "schemas"),
    *(
        "primary_key_constraint_reflection",
        "foreign_key_constraint_reflection",
        "self_referential_foreign_keys",
    ),
    *("view_reflection", "table_reflection", "comment_reflection", "temp_table_names", "isolation_level"),
    *(
        "sane_rowcount",
        "identity_columns",
        "computed_columns",
        "unicode_ddl",
        "savepoints",
        "two_phase_transactions",
    ),
    *(
        "time_microseconds",
        "binary_literals",
        "json_type",
        "uuid_data_type",
        "array_type",
        "sql_expressions_inserted_as_primary_key",
    ),
)


class Requirements(SuiteRequirements):
    """The suite's requirements, those of CLOSED closed."""


for _name in CLOSED:
    setattr(Requirements, _name, property(lambda self: exclusions.closed()))
