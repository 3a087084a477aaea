"""A made-up star as newcomers publish it: drafted for its questions, confirmed with rounder bounds, published often."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from dpsql.api import init
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.confirm import confirm_file, groups_of, open_marks
from dpsql.curator.draft import CuratorChoices, DraftWorkload
from dpsql.federation.session import OpenReleases, open_session
from tests.rehearsal.generator import Star
from tests.releases import seeded

LOUD, QUIET = {"user": "80", "row": "20"}, "1"
"""Epsilon at which what is no noise shows: an error of .2% stands hundreds of half-widths away. Integers of rows
that are units have no noise left at 80."""
BY = {"wide": 10, "narrow": 0.2}


def draft(star: Star, folder: Path, statements: Sequence[str], epsilon: str) -> Path:
    """Write the star's files and its confirmed catalog.

    Args:
        star: the rows.
        folder: an empty folder.
        statements: the workload.
        epsilon: of one release.
    """
    data, file = folder / "data", folder / "star.yaml"
    data.mkdir()
    star.write(data)
    unit = "row" if star.knobs.level == "row" else "person.person_id"
    choices = CuratorChoices(
        unit, frozenset(star.public), epsilon="1", cap="10", data_dependent=star.knobs.allow
    )
    init(data, file, ask=lambda sketch: choices, workload=DraftWorkload(statements))
    confirm_file(file, dict.fromkeys(groups_of(open_marks(load_catalog(file))), True), "the rehearsal")
    catalog = yaml.safe_load(file.read_text())
    _adjust(catalog, star, epsilon)
    file.write_text(yaml.safe_dump(catalog, sort_keys=False), encoding="utf-8")
    return file


def _adjust(catalog: dict[str, Any], star: Star, epsilon: str) -> None:
    """The knobs that a draft does not have."""
    knobs, privacy = star.knobs, catalog["privacy"]
    privacy |= {"epsilon": epsilon, "cap": "9600", "delta": knobs.delta}
    if knobs.delta == "0":  # one draw for all measures of a view has no shares among them
        for view in catalog["views"].values():
            view["measures"] = list(view["measures"])
    for name, table in catalog["tables"].items():
        if knobs.max_ids != "auto" and table.get("max_ids") == "auto":
            table["max_ids"] = int(knobs.max_ids)
        for column in [*(table.get("columns") or {}).values(), *(table.get("measures") or {}).values()]:
            if knobs.bounds in BY and name in ("visit", "loan", "item") and column.get("measure"):
                for end in ("lower", "upper"):
                    column[end] = round(float(column[end]) * BY[knobs.bounds])
                if "width" in (column.get("cuts") or {}):
                    column["cuts"] = {"width": float(column["cuts"]["width"]) * BY[knobs.bounds]}
            if knobs.coarse and column["type"] in ("int", "decimal") and "upper" in column:
                width = (float(column["upper"]) - float(column["lower"])) / 10
                column["cuts"] = {"width": max(1, round(width)) if column["type"] == "int" else width}
    for axis in (axis for view in catalog["views"].values() for axis in view["axes"]):
        cuts = axis.get("cuts") if isinstance(axis, dict) else None  # those of the workload
        if knobs.coarse and cuts:
            del axis["cuts"]
        elif isinstance(cuts, list) and knobs.bounds == "narrow":
            table, column = axis["axis"].split(".")
            spec = catalog["tables"][table]["columns"].get(column, {})
            if "upper" in spec and spec["type"] in ("int", "decimal"):
                low, high = float(spec["lower"]), float(spec["upper"])
                axis["cuts"] = [cut for cut in cuts if low < float(cut) <= high]
                if not axis["cuts"]:
                    del axis["cuts"]


@contextmanager
def published(catalog: Path, seeds: Sequence[int]) -> Iterator[list[OpenReleases]]:
    """Releases with repeatable noise, one a seed."""
    loaded, opened = load_catalog(catalog), list[OpenReleases]()
    for seed in seeds:
        target = catalog.parent / f"{seed}.dpsql"
        if not target.exists():
            publish_release(loaded, target, noise=seeded(seed), key=b"%032d" % seed)
        opened.append(open_session([target], insecure=True))
    try:
        yield opened
    finally:
        for session in opened:
            session.close()
