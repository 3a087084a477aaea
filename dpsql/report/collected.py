"""What the page says about a collection: who reported, how far one hostile report reaches, what a shuffler adds.

**Privacy**: facts of the release alone; reports were private before they were counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from dpsql.answer.participation import WHOM
from dpsql.report.markup import table

SIMULATED = (
    "These reports were simulated on one machine that saw all rows. The release shows what a collection would "
    "bring; it protects nobody."
)


def collected(local: Mapping[str, Any]) -> list[str]:
    """The page's part about people's own reports; nothing for a central release.

    Args:
        local: the release's `meta.local`, or an empty mapping.

    Returns:
        HTML.
    """
    if not local:
        return []
    manifest = local["manifest"]
    rows = [
        ("collection", str(local["collection"])),
        ("reports accepted", f"{manifest['accepted']:,} of {manifest['reports']:,}".replace(",", " ")),
        *((f"rejected: {why}", str(count)) for why, count in manifest["rejected"].items()),
        *([("rows of one person that may speak (tau)", str(local["tau"]))] if "tau" in local else []),
        *_weight(local),
        *_first_round(local),
        *_influence(local),
        *_smooth(local),
        *([("hash of the plan", str(local["plan_hash"]))] if "plan_hash" in local else []),
    ]
    whom = f"<p>Counts, sums and averages are {escape(WHOM[local.get('participation', 'unknown')])}.</p>"
    stamp = [f"<p><strong>{SIMULATED}</strong></p>"] if local.get("simulated") else []
    return ["<h2>Who reported</h2>", whom, *stamp, table(("what", "value"), rows), *_shuffled(local)]


def _influence(local: Mapping[str, Any]) -> list[tuple[str, str]]:
    reach = local.get("influence", {}).get("rows_at_most")
    return (
        []
        if reach is None
        else [("one hostile report moves a count over one axis by at most", f"{reach:,.0f} rows")]
    )


def _weight(local: Mapping[str, Any]) -> list[tuple[str, str]]:
    if not local.get("row_weight_error"):
        return []
    return [
        (
            "weight of a row, for those beyond tau",
            f"{local['row_weight']:.3g} ± {local['row_weight_error']:.2g}",
        )
    ]


def _first_round(local: Mapping[str, Any]) -> list[tuple[str, str]]:
    first = local.get("first_round")
    return (
        []
        if first is None
        else [("reports of row counts, in the first round", str(first["reports_of_row_counts"]))]
    )


def _smooth(local: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the smooth counts, stored beside the unbiased ones, leave the latter's intervals too often."""
    found = local.get("smooth_outside_unbiased", {}).items()
    return [
        (f"ranges of {axis} where smooth counts leave the 95% interval", f"{part:.1%}")
        for axis, part in found
    ]


def _shuffled(local: Mapping[str, Any]) -> list[str]:
    told = local.get("shuffled")
    if told is None:
        return []
    head = "<h2>If an anonymous shuffler stood in between</h2>"
    if "void" in told:
        return [head, f"<p>Nothing more is promised: {escape(told['void'])}.</p>"]
    promise = (
        f"All {told['people']} reports together are also ({told['epsilon']:.4g}, {told['delta']:g})-differentially "
        f"private, against whoever sees them shuffled. This holds only if {told['holds_if']}. Otherwise the promise "
        "above stands alone."
    )
    return [head, f"<p>{escape(promise)}</p>"]
