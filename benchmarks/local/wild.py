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
TEXTS = json.loads(Path(__file__).with_name("wild.json").read_text(encoding="utf-8"))
AXES: list[dict[str, Any]] = TEXTS["axes"]
WORDS: list[str] = TEXTS["words"]
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
