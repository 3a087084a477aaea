"""Damaged input of every kind that dpsql reads, and what came of each piece.

    run(KINDS["catalogs"], seed, count) -> Outcome

A kind makes mutants of good pieces and reads each as dpsql does. Whatever arrives, the end is an answer or a typed
error of one line, within `SECONDS` of CPU. The default suite reads a few, `benchmarks.withstand.fuzz` thousands.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import yaml

from dpsql.catalog import parse_catalog, spec_hash
from dpsql.central.central import publish_release
from dpsql.client import Row, decode, encode, read_plan, respond, to_json
from dpsql.client.device import from_json
from dpsql.client.plan import Plan
from dpsql.errors import UNSEEN, DataError, Error, InternalError
from dpsql.local.collector import decode_reports
from dpsql.noise import ZeroNoise
from tests.local_plans import InsecureTestEntropy, all_kinds, plan_of, plan_text

SECONDS = 1.0
"""CPU that one piece may take."""
CATALOGS = Path(__file__).parents[2] / "catalog"

STRANGE: tuple[Any, ...] = (
    "", "null", "~", "-1", "0", "1/0", "1/3", "0.1", "1e999999999", "1e-999999999", "NaN", ".inf", "9" * 400,
    "9" * 30, "0x10",
    "1_000", "١٢", "²", "true", "row", "2025-02-30", "9999-12-31", "0001-01-01", "-0", "${HOME}", "../../etc/passwd",
    "a.b.c", "*", "_", "meta", "x\u202e", "x\u001b[2J", "a" * 5000, "'; DROP TABLE meta; --", "(" * 300,
    "SELECT 1", "é" * 40,
    "age + 1", "CASE WHEN 1 THEN 2 END", [], {}, [[]], [["1"]], {"a": {"b": "c"}}, ["1"] * 300, "customer.customer_id",
)  # fmt: skip
"""What is put where something else stood."""
MARKS = ("", " ", "\n", "\t", ":", "- ", "[", "]", "{", "}", '"', "'", "&a ", "*a ", "!!python/none ", "|", ">", "#",
         ",", "%", "@", "`", "---\n", "? ", "<<: ", "\x00", "\ufeff", "0", "e", "\\")  # fmt: skip


class Kind(NamedTuple):
    """One kind of input: how a damaged piece is made, and how it is read."""

    mutant: Callable[[random.Random], Any]
    read: Callable[[Any], object]


class Outcome(NamedTuple):
    """What came of some pieces.

    Args:
        ends: how many were `read`, `refused`, or ended in a fault.
        faults: the first faults, in words, each with its piece.
        slowest: CPU seconds of the slowest piece.
    """

    ends: Counter[str]
    faults: list[str]
    slowest: float


def run(kind: Kind, seed: int, count: int) -> Outcome:
    """Read some damaged pieces."""
    draw, found = random.Random(seed), Outcome(Counter(), [], 0.0)
    read(kind, kind.mutant(random.Random(seed)))  # the first piece of a process would pay for its imports
    for _ in range(count):
        piece, start = kind.mutant(draw), time.process_time()
        end = read(kind, piece)
        took = time.process_time() - start
        found = found._replace(slowest=max(found.slowest, took))
        if end in ("read", "refused") and took >= SECONDS:
            end = f"slow: {took:.1f} s"
        found.ends[end.partition(":")[0]] += 1
        if end not in ("read", "refused") and len(found.faults) < 20:
            found.faults.append(f"{end}\n{piece!r:.2000}")
    return found


def read(kind: Kind, piece: Any) -> str:
    """How one piece ends."""
    try:
        kind.read(piece)
    except InternalError as error:
        return f"a broken promise: {error}"
    except Error as error:
        said = str(error)
        return f"no line: {said!r:.300}" if UNSEEN.search(said) else "refused"
    except Exception:  # noqa: BLE001 - a traceback is what is counted
        return f"traceback: {traceback.format_exc(limit=-4)}"
    return "read"


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from _places(each, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


def damaged(draw: random.Random, body: Any, strange: tuple[Any, ...]) -> Any:
    """A copy of a tree of dicts and lists with a few entries replaced, moved, doubled, renamed or taken out."""
    made = json.loads(json.dumps(body))
    for _ in range(draw.randrange(1, 4)):
        places = [place for place in _places(made) if place]
        if not places:
            break
        place = draw.choice(places)
        holder, key = _at(made, place[:-1]), place[-1]
        act = draw.randrange(6)
        if act <= 2:
            holder[key] = json.loads(json.dumps(draw.choice(strange)))
        elif act == 3:
            holder[key] = json.loads(json.dumps(_at(made, draw.choice(places))))
        elif act == 4:
            del holder[key]
        elif isinstance(holder, dict):
            holder[str(draw.choice(strange))[:60]] = holder.pop(key)
        else:
            holder.append(holder[key])
    return made


def scrambled(draw: random.Random, text: str, marks: tuple[str, ...] = MARKS) -> str:
    """A text with a few pieces cut out, doubled, moved, or marks put in."""
    for _ in range(draw.randrange(1, 5)):
        at, other = draw.randrange(len(text) + 1), draw.randrange(len(text) + 1)
        size = draw.choice((0, 1, 1, 2, 5, 40))
        put = draw.choice((draw.choice(marks), text[other : other + size]))
        text = text[:at] + put + text[at + draw.choice((0, size)) :]
    return text


def flipped(draw: random.Random, data: bytes) -> bytes:
    """Bytes with some changed, cut out, doubled or put in."""
    made = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4, 20))):
        at = draw.randrange(len(made) + 1)
        act = draw.randrange(4)
        if act == 0 and at < len(made):
            made[at] ^= 1 << draw.randrange(8)
        elif act == 1:
            made[at : at + draw.choice((1, 2, 8, 100))] = b""
        elif act == 2:
            made[at:at] = draw.randbytes(draw.choice((1, 4, 30)))
        else:
            made[at : at + 4] = draw.choice((b"\xff\xff\xff\x7f", b"\0\0\0\0", b"\xff\xff\xff\xff", b'"\n",'))
    return bytes(made)


TEXTS = tuple(path.read_text(encoding="utf-8") for path in sorted(CATALOGS.glob("*.yaml")))
TREES = tuple(yaml.load(text, Loader=yaml.BaseLoader) for text in TEXTS)


def catalog(draw: random.Random) -> str:
    """A damaged catalog."""
    if draw.random() < 0.5:
        return scrambled(draw, draw.choice(TEXTS))
    return json.dumps(damaged(draw, draw.choice(TREES), STRANGE), ensure_ascii=False)


def read_catalog(text: str) -> None:
    """As every command reads it: its star resolved, its hash taken."""
    found = parse_catalog(text)
    _ = found.star
    spec_hash(found)


PLANS = (json.loads(plan_text(*all_kinds())), *(json.loads(plan_text(each)) for each in all_kinds()))
NUMBERS: tuple[Any, ...] = (
    *STRANGE,
    0,
    1,
    -1,
    2,
    7,
    2**16,
    2**20,
    2**31,
    2**63,
    10**30,
    1.5,
    None,
    True,
    [0, 4],
    [0, 0],
)


def plan(draw: random.Random) -> bytes:
    """A damaged collection plan."""
    body = draw.choice(PLANS)
    if draw.random() < 0.3:
        return scrambled(draw, json.dumps(body, sort_keys=True, separators=(",", ":"))).encode()
    made = damaged(draw, body, NUMBERS)
    return json.dumps(made, sort_keys=True, separators=(",", ":")).encode()


def read_damaged_plan(raw: bytes) -> None:
    """As a device reads it; whoever takes a plan must be able to answer it, whatever her rows are."""
    found = read_plan(raw)
    lower = tuple(measure.lower for measure in found.measures)
    row = Row(tuple(axis.leaves - 1 for axis in found.axes), lower)
    for rows in ([], [row], [row] * 9):
        respond(found, rows, InsecureTestEntropy(raw))


COLLECTED = plan_of(*all_kinds())


def good_reports(asked: Plan, count: int) -> list[bytes]:
    """Reports of made-up people."""
    entropy = InsecureTestEntropy(b"fuzz")
    return [respond(asked, [Row((i % 4, i % 3), (i % 7,))], entropy) for i in range(count)]


GOOD = good_reports(COLLECTED, 300)


def malformed(draw: random.Random) -> bytes:
    """A report that no device sends for the plan: each way of being wrong is enough alone."""
    raw = bytearray(draw.choice(GOOD))
    act = draw.randrange(7)
    if act == 0:
        raw[draw.randrange(2)] ^= 1 << draw.randrange(8)
    elif act == 1:
        raw[2 + draw.randrange(8)] ^= 1 << draw.randrange(8)
    elif act == 2:
        raw[10] |= 1 << draw.randrange(8)  # a view beyond all
    elif act == 3:
        raw[12] ^= 1 << draw.randrange(8)  # another oracle than the view's
    elif act == 4:
        del raw[draw.randrange(13, len(raw)) if draw.random() < 0.1 else draw.randrange(13) :]
        raw = raw if len(raw) <= 13 else raw[:13]
    elif act == 5:
        raw += b"\x80" * draw.choice((1, 2, 40, 5000))
    else:
        return draw.randbytes(draw.randrange(60))
    return bytes(raw)


def collect(raw: bytes) -> None:
    """As the collector reads a report of its plan: read strictly, or rejected by reason."""
    decode(raw)
    counted = decode_reports(COLLECTED, [raw], np.zeros(1, np.uint8))
    if counted.collection.accepted != 1:
        raise DataError(f"rejected: {', '.join(+counted.rejected)}")


JSON_MARKS = (*MARKS, "null", "true", "-1", "1e999", "9" * 5000, "[" * 2000, '{"a":' * 500, "\\ud800", "NaN")


def json_report(draw: random.Random) -> str:
    """A damaged JSON line."""
    return scrambled(draw, to_json(decode(draw.choice(GOOD))), JSON_MARKS).replace("\n", " ")


CSV_ROWS = "id,age,region\n" + "".join(
    f'{i},{18 + i % 30},"{["north", "south"][i % 2]}"\n' for i in range(30)
)
STAR = """
dpsql: 1
name: fuzz
privacy: {lineage: fuzz, cap: 4, unit: row, epsilon: 1}
source: {kind: KIND, root: ROOT, tables: {person: person.KIND}}
tables:
  person: {role: fact, columns: {
    age: {type: int, lower: 18, upper: 47, measure: true}, region: {type: string, categories: [north, south]}}}
views:
  v: {of: person, axes: [person.age, person.region], measures: [count, person.age]}
"""


def _parquet() -> bytes:
    file = io.BytesIO()
    columns = {"id": range(30), "age": [18 + i % 30 for i in range(30)], "region": ["north", "south"] * 15}
    pa.parquet.write_table(pa.table({name: list(values) for name, values in columns.items()}), file)
    return file.getvalue()


PARQUET_ROWS = _parquet()


def published(kind: str) -> Callable[[bytes], None]:
    """Publish a star whose table is a file of these bytes."""

    def publish(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="dpsql-fuzz-") as name:
            folder = Path(name)
            (folder / f"person.{kind}").write_bytes(data)
            text = STAR.replace("KIND", kind).replace("ROOT", str(folder))
            star = parse_catalog(text, "fuzz", folder / "fuzz.yaml")
            publish_release(star, folder / "fuzz.dpsql", noise=ZeroNoise(), key=bytes(32))

    return publish


KINDS: Mapping[str, Kind] = {
    "catalogs": Kind(catalog, read_catalog),
    "collection plans": Kind(plan, read_damaged_plan),
    "reports": Kind(malformed, collect),
    "JSON reports": Kind(json_report, lambda line: collect(encode(from_json(line)))),
    "CSV sources": Kind(lambda draw: flipped(draw, CSV_ROWS.encode()), published("csv")),
    "Parquet sources": Kind(lambda draw: flipped(draw, PARQUET_ROWS), published("parquet")),
}
