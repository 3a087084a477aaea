"""Calls from a lower storey into a higher one, seen while a small shop is published, appended to and asked.

The storeys are the layers of `.importlinter`, the highest first. An import contract cannot see a call through an object
that was handed down; this can. A function that was itself handed down (an argument, or a field of `self`, that is the
function called) is a callback, and is allowed, and so is what Python itself asks of a value handed down (its hash, its
length). Modules of no storey (`dpsql.sqlalchemy`) are passed over: their caller
is whoever called them.
"""

from __future__ import annotations

import configparser
import functools
import sys
import tempfile
import types
from collections import Counter
from pathlib import Path
from typing import Any


def upward_calls(project: Path) -> list[str]:
    """Each pair of caller and callee, with how often it was seen."""
    storeys = storeys_of(project / ".importlinter")
    seen: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        _warm(Path(folder))

        def watch(frame: types.FrameType, event: str, argument: Any) -> None:
            if event == "call":
                _note(frame, storeys, seen)

        sys.setprofile(watch)
        try:
            _work(Path(folder))
        finally:
            sys.setprofile(None)
    return [f"{caller} -> {callee}: {count} times" for (caller, callee), count in sorted(seen.items())]


def storeys_of(file: Path) -> dict[str, int]:
    """Each layer's number, 0 for the highest; modules of one line share it."""
    parser = configparser.ConfigParser()
    parser.read(file)
    lines = parser["importlinter:contract:layers"]["layers"].strip().splitlines()
    return {name.strip(" ()"): number for number, line in enumerate(lines) for name in line.split("|")}


def storey(module: str, storeys: dict[str, int]) -> int | None:
    """The storey of a module, by the longest layer that it lies in."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in storeys:
            return storeys[".".join(parts[:length])]
    return None


def _note(frame: types.FrameType, storeys: dict[str, int], seen: Counter[tuple[str, str]]) -> None:
    callee = frame.f_globals.get("__name__", "")
    here = storey(callee, storeys) if callee.startswith("dpsql") else None
    if here is None or frame.f_code.co_name == "<module>":
        return
    caller = frame.f_back
    while caller is not None and storey(caller.f_globals.get("__name__", ""), storeys) is None:
        if _holds(caller, frame.f_code):
            return
        caller = caller.f_back
    if caller is None:
        return
    above = storey(caller.f_globals["__name__"], storeys)
    if above is not None and here < above and not _holds(caller, frame.f_code):
        names = (f"{f.f_globals['__name__']}.{f.f_code.co_qualname}" for f in (caller, frame))
        seen[next(names), next(names)] += 1


def _holds(frame: types.FrameType, code: types.CodeType) -> bool:
    """Has the frame the called function among its arguments and variables, or its `self` among its fields?"""
    values = list(frame.f_locals.values())
    own = frame.f_locals.get("self")
    values += list(getattr(own, "__dict__", {}).values())
    special = code.co_name if code.co_name.startswith("__") else ""
    return any(code in (_code(value), _code(getattr(type(value), special, None))) for value in values)


def _code(value: Any) -> types.CodeType | None:
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, types.MethodType):
        value = value.__func__
    return value.__code__ if isinstance(value, types.FunctionType) else None


QUESTIONS = (
    "SELECT region, COUNT(*), DP_STDERR(COUNT(*)), DP_INTERVAL_LOW(COUNT(*)) FROM sales "
    "JOIN customer USING (customer_id) GROUP BY region",
    "SELECT AVG(amount), DP_STDERR(AVG(amount)) FROM sales WHERE sold_on >= DATE '2025-01-02'",
)


def _warm(folder: Path) -> None:
    """Imports and caches first: what they call is not what is looked at."""
    from tests.stream_shop import CATALOG, make_stream_shop

    make_stream_shop(folder / "stream", customers=200)
    central = make_stream_shop(folder / "central", customers=200, text=_without_stream(CATALOG))
    assert central.catalog.exists()


def _without_stream(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith("stream:"))


def _work(folder: Path) -> None:
    """Publish, append and query through the package's front."""
    import dpsql

    central, stream = folder / "central", folder / "stream"
    dpsql.publish(central / "retail.yaml", central / "retail.dpsql", progress=lambda step: None)
    for day in ("2025-01-01", "2025-01-02"):
        dpsql.append(stream / "retail.dpsql", None, day, catalog=stream / "retail.yaml")
    for release in (central, stream):
        for question in QUESTIONS:
            dpsql.query(question, release=release / "retail.dpsql").df()
