"""The suite itself, without the classes that only ask what a read-only dialect does not do."""

from sqlalchemy.testing.suite import *  # noqa: F403

WRITES = "inserts, updates or their returned rows; a release is never written"
MAKES = "makes tables, indexes or names of them"
REFLECTS = "reflects tables that the suite made; dpsql's inspector describes a release's star"

LEFT_OUT = {
    "ReturningGuardsTest": WRITES,
    "InsertBehaviorTest": WRITES,
    "IdentityAutoincrementTest": WRITES,
    "LastrowidTest": WRITES,
    "LongNameBlowoutTest": MAKES,
    "TableViaSelectTest": MAKES,
    "JoinTest": MAKES,
    "HasTableTest": REFLECTS,
    "HasIndexTest": REFLECTS,
    "ComponentReflectionTest": REFLECTS,
    "ComponentReflectionTestExtra": REFLECTS,
    "QuotedNameArgumentTest": REFLECTS,
    "BizarroCharacterTest": REFLECTS,
    "CompositeKeyReflectionTest": REFLECTS,
    "TableNoColumnsTest": REFLECTS,
    "NormalizedNameTest": REFLECTS,
}

for _name in LEFT_OUT:
    globals().pop(_name, None)
