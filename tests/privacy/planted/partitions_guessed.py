"""A file beside the folders takes their column away from all files."""

from collections.abc import Callable

from dpsql import engines
from dpsql.engines.schema_union import SchemaGroup
from tests.privacy.plant import Plant
from tests.privacy.source_cases import file_beside_folders


def all_or_none(read: Callable[..., list[SchemaGroup]]) -> Callable[..., list[SchemaGroup]]:
    def members(*where: object) -> list[SchemaGroup]:
        listed = read(*where)
        missing = {name for member in listed for name, value in member.folders.items() if value is None}
        return [
            member._replace(folders=dict(member.folders) | dict.fromkeys(missing & set(member.folders)))
            for member in listed
        ]

    return members


PLANT = Plant(
    "partitions are guessed from all files together",
    (engines, "parquet_members"),
    all_or_none,
    file_beside_folders,
)
