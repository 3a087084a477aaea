"""Lists of keys that nobody listed: what found them follows from the catalog, and each shown key passed its threshold.

Which keys were not shown is stored nowhere, so that a key is missing cannot be seen. That a shown one passed can.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from dpsql.catalog.private_keys import is_key
from dpsql.central.key_plans import KeyPlan, key_plans
from dpsql.central.selection import KeyList, always_keys, key_list_meta, order_of
from dpsql.curator.audit.replan import Replanned
from dpsql.curator.audit.report import Check
from dpsql.release import Release
from dpsql.release.format import KeyListMeta


def check_key_lists(release: Release, made: Replanned) -> Iterator[Check]:
    """One line for each list."""
    plans = key_plans(made.catalog)
    if [meta.column for meta in release.meta.keys] != [plan.column.name for plan in plans]:
        yield Check("lists of keys are those of the catalog", False)
        return
    for plan, meta in zip(plans, release.meta.keys, strict=True):
        wrong = list(_faults(plan, meta, made.lists[meta.column], made.limits[meta.column]))
        what = "passed their threshold" if meta.rounds else "were listed before"
        people = f", each of about {meta.people():.0f} people or more" if meta.rounds else ""
        detail = ", ".join(wrong) or f"{meta.keys} keys{people}"
        yield Check(f"keys of {meta.column} {what}", not wrong, detail)
        if meta.known is not None:
            yield Check(
                f"keys of {meta.column} listed before", None, f"they are those of release {meta.known}"
            )


def _faults(plan: KeyPlan, meta: KeyListMeta, found: KeyList, most: int) -> Iterator[str]:
    """Faults of a key list."""
    column = plan.column
    if meta != key_list_meta(plan, found, most, meta.known):
        yield "thresholds, deltas or sizes are not those of the catalog"
    if any(order_of(first) >= order_of(second) for first, second in pairwise(found.keys)):
        yield "keys are not sorted, or one is repeated"
    if column.spec.type == "string" and not all(
        is_key(str(key), column.keys.length, column.spec.other) for key in found.keys
    ):
        yield "a text is not a key"
    listed = set(always_keys(column))
    for key, number, weight in zip(found.keys, found.rounds, found.weights, strict=True):
        if number == 0 and (weight != 0 or (key not in listed and meta.known is None)):
            yield "a key is in no list"
        if number != 0 and (
            not 1 <= number <= len(plan.rounds) or weight < plan.rounds[number - 1].threshold
        ):
            yield "a noisy weight lies below its threshold"
    if not listed <= {key for key, number in zip(found.keys, found.rounds, strict=True) if number == 0}:
        yield "a value of `always` is missing"
