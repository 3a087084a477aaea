"""Promises of streams, measured: nobody over the lifetime cap whatever types come, and no equality test of batches.

Thirty people come in three batches of which each may count in two. Their numbers come as integers, floats, decimals
and text, in files and in the dimension, drawn at random. A unit is over its cap if its counter is, or if a person
was counted under a second name.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from click.testing import CliRunner

from dpsql import api
from dpsql.engines import keys
from dpsql.interfaces.cli.curate import append
from tests.privacy.test_stream_types import PEOPLE, WHOLE, counters, day_file, people, shop_of
from tests.stream_shop import StreamShop

SEQUENCES = 40
CAP = 2


def units_over_cap(folder: Path, sequences: int = SEQUENCES) -> float:
    """Units over their lifetime cap, in all random sequences of types."""
    return float(sum(_over(folder / str(seed), random.Random(seed)) for seed in range(sequences)))


def _over(folder: Path, rng: random.Random) -> int:
    """Units over their cap in one random sequence."""
    dimension = [key for key in WHOLE if key not in ("DOUBLE, one missing", "text", "padded", "float text")]
    shop = shop_of(folder, rng.choice(dimension))
    for day in range(CAP + 1):
        if day:
            people(shop, rng.choice([key for key in WHOLE if key != "DOUBLE, one missing"]))
        key = rng.choice(list(WHOLE))
        ending = rng.choice(["csv", "parquet"]) if "text" in key or key == "padded" else "parquet"
        shop.append(day, day_file(folder, day, key, ending=ending, shop="text"))
    batches = counters(shop)
    return sum(number > CAP for number in batches) + max(0, len(batches) - PEOPLE - 1)


def batches_told_apart(folder: Path) -> float:
    """Files whose output or exit code at `append` differs from that of the public batch's own file."""
    shop = shop_of(folder)
    same = day_file(folder, 0, "BIGINT")
    shop.append(0, same)
    others = folder / "others"
    others.mkdir()
    (others / "torn.parquet").write_bytes(same.read_bytes()[:60])
    files = [
        day_file(others, 0, "BIGINT", who="n % 7"), day_file(others, 1, "DOUBLE, one missing"), others / "torn.parquet",
        day_file(others, 2, "padded", ending="csv"), folder / "data" / "customer.parquet", others / "absent.parquet",
    ]  # fmt: skip
    want = _seen(shop, same)
    if want[0] != 0:
        raise AssertionError(f"the batch's own file was not taken: {want}")
    return float(sum(_seen(shop, file) != want for file in files))


def _seen(shop: StreamShop, file: Path) -> tuple[int, str]:
    """Exit code and output of appending a file as the first day."""
    arguments = [str(shop.directory), "--catalog", str(shop.catalog), "--batch", "2025-01-01", "--json"]
    shown = CliRunner().invoke(append, [*arguments, "--source", str(file)])
    return shown.exit_code, shown.output + repr(shown.exception)


def missed_stream_plants(folder: Path) -> float:
    """How many defects of streams do not show once they are put back: keys by their text, batches compared."""
    with (
        mock.patch.object(keys, "group_type", lambda *_: "VARCHAR"),
        mock.patch.object(keys, "exact_cast", lambda value, own, target: f"CAST({value} AS VARCHAR)"),
    ):
        by_text = units_over_cap(folder / "text", 4)
    with mock.patch.object(api, "append", _comparing(api.append)):
        compared = batches_told_apart(folder / "compared")
    return float((by_text == 0) + (compared == 0))


def _comparing(as_it_is: Callable[..., object]) -> Callable[..., object]:
    """Appends as they once were: a public batch with other rows was refused."""

    def compare(release: Path, source: Path, batch: str, *, catalog: Path, progress: object) -> object:
        api.check_batch(release, source, batch, catalog=catalog)
        return as_it_is(release, source, batch, catalog=catalog, progress=progress)

    return compare
