"""Texts as forms, files and keyboards bring them, and what both device clients make of each: needs Node.

Made from a seed by a fixed recipe: numbers, dates, times, booleans and categories, then damaged. Nothing was tuned on
the seeds that tests and figures use.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

from dpsql.client.device import leaf_of, units
from dpsql.client.plan import read_axis

CLIENT = Path(__file__).parents[2] / "clients" / "js" / "dpsql-rows.js"
AXES: tuple[dict[str, Any], ...] = (
    {"name": "category", "leaves": 9, "values": ["north", "7", "7.5", "true", "", " ", "é", "NaN"], "other_leaf": 8},
    {"name": "key", "leaves": 5, "keys": {"7": 0, "north": 1, "": 2, "__proto__": 3}, "missing_leaf": 4},
    {"name": "whole", "leaves": 6, "starts": [-9, 0, 10, 100, 5000], "upper": 10**6, "scale": 0, "other_leaf": 5},
    {"name": "cents", "leaves": 5, "starts": [-500, 0, 1, 1050], "upper": 10**9, "scale": 2, "other_leaf": 4},
    {"name": "day", "leaves": 5, "starts": [-719162, 0, 19000, 20089], "upper": 2932896, "type": "date",
     "other_leaf": 4},
    {"name": "hour", "leaves": 4, "starts": [0, 456000, 482000], "upper": 10**6, "type": "timestamp", "grain": "hour",
     "other_leaf": 3},
    {"name": "second", "leaves": 4, "starts": [-(10**12), 0, 1700000000], "upper": 10**12, "type": "timestamp",
     "other_leaf": 3},
    {"name": "even", "leaves": 6, "lower": 20, "width": 7, "null_leaf": 4, "other_leaf": 5},
)  # fmt: skip
UNITS = ((0, -99, 10**15), (2, -(2**53) + 1, 2**53 - 1), (18, -(10**15), 10**15))
"""Scale, lower and upper bound of what texts are measured by."""
SPACES = [*[""] * 30, *" \t\n\r\x0b\x0c\x1f\x85\u00a0\u2003\ufeff"]
ALIEN = [
    *"0123456789",
    *"+-.eE:TZz, _/xX'",
    *"\u0661\uff11\u0130\u0131\u017f\u212a\u2212\u00bd",
    "\x00",
    "\ud800",
    "\U0001f600",
]
WORDS = [
    "north", "North", "7", "7.0", "7.5", "true", "True", "TRUE", "t", "1", "0", "yes", "NaN", "nan", "-nan", "sNaN",
    "inf", "-inf", "Infinity", "+INFINITY", "infinit", "\u0130nf", "1_000", "1,000", "0x10", "1e5", "1E+5", "1e-400",
    "1e400", "-1e400", "1e9999999999", "-1e-99999999999999999999", "0e9999999999999", ".", "e5", ".5", "5.", "+.5e1",
    "--5", "+-5", "5-", "1e", "1e+", "é", "e\u0301", "__proto__", "constructor", "null", "None", "", " ", "0.5", "-0",
    "0.005", "0.015", "1.005", "2.675", "-0.005", "4503599627370496.5", "9007199254740993", "0.49999999999999994",
    "1970-W01-1", "19700101", "1970-001", "2024-02-29", "2023-02-29", "0000-01-01", "0001-01-01", "9999-12-31",
    "0099-12-31", "10000-01-01", "-0001-01-01", "2024-13-01", "2024-00-10", "2024-04-31", "2024-1-5", "2024/01/05",
    "05.01.2024", "2024-01-05T", "2024-01-05T24:00", "2024-01-05T23:59:60", "2024-01-05t05:06", "2024-01-05T05",
    "2024-01-05 05:06", "2024-01-05T05:06Z", "2024-01-05T05:06z", "2024-01-05T05:06:07,5", "2024-01-05T05:06:07.",
    "2024-01-05T05:06:07.1234567890", "2024-01-05T05:06+05", "2024-01-05T05:06+0530", "2024-01-05T05:06+24:00",
    "2024-01-05T05:06-00:00", "0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59", "2024-01-05  05:06", "12:30",
]  # fmt: skip


def wild_texts(count: int, seed: int) -> list[str]:
    """Texts of every sort, of which about half are damaged."""
    rng = random.Random(seed)
    makers = (_number, _number, _moment, _moment, lambda rng: rng.choice(WORDS))
    texts = []
    for _ in range(count):
        text = rng.choice(makers)(rng)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(ALIEN) + text[at + rng.randrange(2) :]
        texts.append(rng.choice(SPACES) + text + rng.choice(SPACES))
    return texts


def _digits(rng: random.Random, most: int) -> str:
    return "".join(rng.choice("0123456789") for _ in range(rng.randrange(most)))


def _number(rng: random.Random) -> str:
    long = rng.choice((3, 5, 20, 40))
    power = rng.choice(("", "", f"e{rng.choice(('', '+', '-'))}{_digits(rng, 4)}"))
    half = rng.choice(("", "5", "50000000000000000000", "49999999999999999999"))
    return f"{rng.choice(('', '', '-', '+'))}{_digits(rng, long)}.{_digits(rng, 4)}{half}{power}"


def _moment(rng: random.Random) -> str:
    day = f"{rng.choice((1970, 2024, rng.randrange(10_000))):04d}-{rng.randrange(14):02d}-{rng.randrange(33):02d}"
    if rng.random() < 0.3:
        return day
    time = f"{rng.randrange(26):02d}:{rng.randrange(62):02d}"
    time += rng.choice(("", f":{rng.randrange(62):02d}", f":{rng.randrange(60):02d}.{_digits(rng, 12)}"))
    zone = rng.choice(("", "Z", f"{rng.choice('+-')}{rng.randrange(26):02d}:{rng.randrange(62):02d}"))
    return f"{day}{rng.choice('T T t_')}{time}{zone}"


def read_by_python(values: list[Any]) -> list[list[int | None]]:
    """What the Python client makes of each value: a leaf an axis, then steps a measure."""
    axes = [read_axis(axis) for axis in AXES]
    return [
        [leaf_of(axis, value) for axis in axes] + [units(value, *bounds) for bounds in UNITS]
        for value in values
    ]


def read_by_javascript(values: list[Any]) -> list[list[int | None]]:
    """What the JavaScript client makes of them, in Node."""
    code = f"""import {{ leafOf, units }} from "{CLIENT.as_uri()}";
    const [axes, bounds, values] = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
    console.log(JSON.stringify(values.map((value) => [
      ...axes.map((axis) => leafOf(axis, value) ?? null), ...bounds.map((three) => units(value, ...three)) ])));"""
    done = subprocess.run(
        [str(shutil.which("node")), "--input-type=module", "-e", code],
        input=json.dumps([AXES, UNITS, values]), capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[list[int | None]] = json.loads(done.stdout)
    return found


def read_alike(count: int, seed: int) -> int:
    """How many of some wild texts both clients read alike, on every axis and measure."""
    texts = wild_texts(count, seed)
    return sum(a == b for a, b in zip(read_by_python(texts), read_by_javascript(texts), strict=True))
