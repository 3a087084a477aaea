"""Functions and modules of the package that one answer and one publish run through: what a reader must follow."""

from __future__ import annotations

import pkgutil
import sys
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType

import dpsql

TRIPS = {"one AVG with its interval": (550, 42), "one publish": (1_000, 75)}
"""At most so many functions, and modules."""
QUESTION = "SELECT region, AVG(amount) AS mean FROM sales JOIN customer USING (customer_id) GROUP BY region"


def count_trips(release: Path, catalog: Path) -> dict[str, tuple[int, int]]:
    """For each trip the functions and the modules that it runs; what loading a module runs is not counted."""
    for module in pkgutil.walk_packages(dpsql.__path__, "dpsql."):
        if not module.name.endswith("__main__"):
            try:
                import_module(module.name)
            except ImportError:  # its extra is not installed
                continue
    _ = dpsql.query("SELECT COUNT(*) FROM customer", release=release).stderr_rows
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder, "ledger.duckdb")
        trips: dict[str, Callable[[], object]] = {
            "one AVG with its interval": lambda: dpsql.query(QUESTION, release=release).interval_rows(0.95),
            "one publish": lambda: dpsql.publish(
                catalog, Path(folder, "one.dpsql"), ledger=ledger, new_ledger=True
            ),
        }
        return {name: _counted(trip) for name, trip in trips.items()}


def _counted(trip: Callable[[], object]) -> tuple[int, int]:
    """Functions and modules that a call runs."""
    seen = set[tuple[str, int]]()
    root = str(Path(dpsql.__file__).parent)

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(root):
            seen.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        trip()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(seen), len({file for file, _ in seen})
