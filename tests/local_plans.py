"""Small collection plans, and entropy that repeats itself, that several tests share."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from dpsql.client import Plan, read_plan

SURVEY = Path(__file__).parents[1] / "catalog" / "survey.yaml"
TWO_ORDERED_AXES = (
    "  travel: {of: answer, axes: [answer.age, answer.minutes], measures: [count, answer.minutes]}\n"
)
W1 = 2850325  # floor(e 2^20)


def write_survey(folder: Path) -> Path:
    """The shipped survey with the view of age and district alone, for tests of what is kept rather than estimated.

    The other view's joint fit takes a second of CPU a collection.
    """
    text = SURVEY.read_text()
    assert TWO_ORDERED_AXES in text
    (folder / "survey.yaml").write_text(text.replace(TWO_ORDERED_AXES, ""))
    return folder / "survey.yaml"


def view(kind: str = "grid", **changes: Any) -> dict[str, Any]:
    """One view of a plan, with the defaults of a grid over axis 0."""
    body: dict[str, Any] = {
        "kind": kind,
        "axes": [0],
        "edges": [[0, 2, 4]],
        "boxes": [],
        "measure": None,
        "empty": True,
        "oracle": "GRR",
        "domain": 3,
        "extra": 0,
        "share": 1,
        "rows": [],
    }
    return {**body, **changes}


def plan_text(*views: dict[str, Any], **changes: Any) -> str:
    """Canonical JSON of a plan over two axes of four and three leaves and one measure."""
    body: dict[str, Any] = {
        "dpsql_plan": 1,
        "collection": "test",
        "epsilon": "1",
        "own": W1,
        "other": 1 << 20,
        "tau": 2,
        "rows_floor": 0,
        "rows_cap": 5,
        "round": 0,
        "rounds": 1,
        "axes": [
            {"name": "age", "leaves": 4, "lower": 0, "width": 10},
            {"name": "region", "leaves": 3, "values": ["north", "south"], "null_leaf": 2},
        ],
        "measures": [{"name": "amount", "lower": -3, "upper": 7, "scale": 0}],
        "views": list(views) or [view()],
    }
    return json.dumps({**body, **changes}, sort_keys=True, separators=(",", ":"))


def plan_of(*views: dict[str, Any], **changes: Any) -> Plan:
    """A checked plan."""
    return read_plan(plan_text(*views, **changes).encode())


def all_kinds() -> list[dict[str, Any]]:
    """One view of every kind and oracle, all sound over `plan_text`'s axes."""
    return [
        view(share=3),
        view(axes=[0, 1], edges=[[0, 1, 4], [0, 1, 2, 3]], measure=0, oracle="OUE", domain=13, share=4),
        view(axes=[0, 1], edges=[[0, 1, 2, 3, 4], [0, 1, 2, 3]], oracle="OLH", domain=13, extra=4, share=5),
        view("weighted", axes=[0, 1], edges=[[0, 1, 4], [0, 2, 3]], empty=False, domain=8, share=3),
        view("weighted", edges=[[0, 2, 4]], measure=0, empty=False, domain=6, share=3),
        view("wave", edges=[[0, 1, 2, 3, 4]], oracle="WAVE", domain=4, extra=1, share=2),
        view("rows", axes=[], edges=[], domain=6, share=2),
        view("rows_bit", axes=[], edges=[], domain=2, share=2, rows=[1, 4]),
        view("boxes", axes=[0, 1], edges=[], boxes=[[0, 2, 0, 3], [2, 4, 0, 1], [2, 4, 1, 3]], domain=4),
    ]


class InsecureTestEntropy:
    """A repeatable byte stream for tests; the memory refuses to store what was drawn from it.

    The stream is SHA-256(seed || counter), the counter as four big-endian bytes from 0.

    Example:
        >>> InsecureTestEntropy(b"dpsql-test-1")(4).hex()
        '46e96811'
    """

    insecure = True

    def __init__(self, seed: bytes) -> None:
        """Start the stream of `seed` at its first byte."""
        self._seed = seed
        self._counter = 0
        self._left = b""

    def __call__(self, size: int) -> bytes:
        """Return the next `size` bytes of the stream."""
        while len(self._left) < size:
            self._left += hashlib.sha256(self._seed + self._counter.to_bytes(4, "big")).digest()
            self._counter += 1
        taken, self._left = self._left[:size], self._left[size:]
        return taken
