"""Promises of the ledger: a label tells nothing about the data, and one table has one cap however it is spelt."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from dpsql.central import central
from dpsql.errors import LineageError
from tests.privacy import test_equality as equality
from tests.privacy import test_lineage as lineage

DEFECTS = {
    "published_before": lambda *_: None,
    "places": lambda kind, root, where: (f"{root}/{where}",),
    "table_digests": lambda *_: (),
}
"""Parts of publishing and what stands in their place: raw rows are opened, tables go by spelling, by place alone."""


def labels_that_tell(folder: Path) -> float:
    """Publishes of changed data under a taken label whose code, words or ledger differ from those of the same data."""
    telling = 0
    for i, options in enumerate(equality.OPTIONS):
        shop = equality.make_shop(folder / str(i))
        equality.publish(shop, *options)
        same = equality.publish(shop, *options)
        for change in equality.CHANGES.values():
            change(shop)
            telling += equality.publish(shop, *options) != same
    return float(telling)


def fresh_caps(folder: Path) -> float:
    """Spellings, SELECTs and copies of a charged table that a second lineage could publish."""
    fresh = 0
    for i, place in enumerate(lineage.SAME.values()):
        shop = lineage.make_shop(folder / str(i))
        try:
            lineage.publish(shop, place(shop))
        except LineageError:
            continue
        fresh += 1
    return float(fresh)


def missed_defects(folder: Path) -> float:
    """Defects of the ledger that neither figure shows once they are put back."""
    missed = 0
    for name, broken in DEFECTS.items():
        with mock.patch.object(central, name, broken):
            missed += not labels_that_tell(folder / name / "labels") + fresh_caps(folder / name / "caps")
    return float(missed)
