"""Flipped bits and cut files: is anything read from a damaged file other than from the whole one, without a word?

Each file is damaged at random places, one bit or one cut at a time, and then used as it is used every day. What comes
must be what the whole file gives, or one line of refusal.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figures, main
from dpsql.api import simulate
from dpsql.errors import Error
from dpsql.interfaces.cli import main as dpsql
from dpsql.ledger.store import budget_report
from tests.kill.commands import forked
from tests.kill.scenes import DAYS, SCENES, append_words, collect_words, done, make_shop

FLIPS, CUTS = 200, 40
REFUSED = 99
JOINED = "sales JOIN customer USING (customer_id)"


class Victim(NamedTuple):
    """A file and its everyday use.

    Args:
        name: what it is called in figures.
        make: fills a folder.
        file: the file, from the folder.
        use: uses it; prints what comes of it, always the same from the whole file.
    """

    name: str
    make: Callable[[Path], object]
    file: str
    use: Callable[[Path], object]


def ask(release: Path, *statements: str) -> None:
    """Print the answers of a release."""
    for sql in statements:
        try:
            dpsql(["query", str(release), sql, "--format", "jsonl"])
        except SystemExit as left:
            if left.code:
                raise


def _streamed(folder: Path) -> None:
    make_shop(folder, DAYS)
    for day in (1, 2):
        done(append_words(folder, day))


def _appended(folder: Path) -> None:
    report = done(append_words(folder, 3))
    print(report["batch"], report["added"])


def _collected(folder: Path) -> None:
    collection = next(scene for scene in SCENES if scene.name == "collect")
    collection.make(folder)
    done(collect_words(folder))
    simulate(folder / "raw.yaml", folder / "more.parquet", folder / "plan.json", seed=2)
    (folder / "b.dpsql").unlink()


def _counted(folder: Path) -> None:
    words = collect_words(folder)
    report = done([*words[:3], folder / "more.parquet", *words[3:]])
    print(report["reports"], report["accepted"])
    ask(folder / "b.dpsql", "SELECT age, COUNT(*) FROM answer GROUP BY age")


def _spent(folder: Path) -> None:
    print(budget_report(folder / ".dpsql" / "ledger.duckdb"))


def _asked(folder: Path) -> None:
    ask(
        folder / "a.dpsql",
        "SELECT COUNT(*) FROM sales",
        f"SELECT sex, COUNT(*) FROM {JOINED} GROUP BY sex",
    )


def _asked_stream(folder: Path) -> None:
    ask(
        folder / "retail.dpsql",
        f"SELECT sold_on, sex, COUNT(*) FROM {JOINED} WHERE sold_on < DATE '2025-01-03' GROUP BY ALL",
    )


_RELEASED = next(scene for scene in SCENES if scene.name == "publish").make
VICTIMS = (
    Victim("release", _RELEASED, "a.dpsql", _asked),
    Victim("stream release", _streamed, "retail.dpsql/states/000000001.duckdb", _asked_stream),
    Victim("ledger", _RELEASED, ".dpsql/ledger.duckdb", _spent),
    Victim("private state of a stream", _streamed, ".dpsql/*.stream", _appended),
    Victim("state of a collection", _collected, "state.duckdb", _counted),
)


def damage(file: Path, chance: random.Random, *, cut: bool) -> str:
    """Flip one bit of a file, or cut it; what was done."""
    content, mode = bytearray(file.read_bytes()), file.stat().st_mode
    at = chance.randrange(len(content))
    if cut:
        del content[at:]
    else:
        content[at] ^= 1 << chance.randrange(8)
    file.unlink()
    file.write_bytes(content)
    file.chmod(mode)
    return f"{'cut' if cut else 'a bit flipped'} at byte {at}"


def withstand(victim: Victim, folder: Path, flips: int, chance: random.Random) -> Counter[str]:
    """How every use of a damaged file ended."""
    work, kept, found = folder / "work", folder / "kept", Counter[str]()
    work.mkdir(parents=True)
    made = forked(lambda: victim.make(work))
    assert made.code == 0, made.said
    shutil.copytree(work, kept)
    whole = forked(lambda: victim.use(work))
    assert whole.code == 0, whole.said
    for turn in range(flips + flips * CUTS // FLIPS):
        shutil.rmtree(work)
        shutil.copytree(kept, work)
        (file,) = work.glob(victim.file)
        what = damage(file, chance, cut=turn >= flips)
        outcome = forked(lambda: _lined(victim, work))
        how = "same" if outcome.said == whole.said else "refused" if outcome.code == REFUSED else "other"
        if outcome.raw or outcome.code not in (0, REFUSED):
            how = "raw"
        found[how] += 1
        if how in ("other", "raw"):
            print(f"{victim.name}, {what}: {how} ({outcome.code}): {outcome.said[-1500:]}", flush=True)
    print(f"{victim.name}: {dict(found)}", flush=True)
    return found


def _lined(victim: Victim, folder: Path) -> None:
    """Use a file; a refusal is its one line and code 99, as the command would leave with its own."""
    try:
        victim.use(folder)
    except (Error, AssertionError, SystemExit) as error:
        print(error)
        sys.stdout.flush()
        os._exit(REFUSED)


def measure(figures: Figures, folder: Path, flips: int = FLIPS) -> None:
    """Flip so many bits."""
    found, chance = Counter[str](), random.Random(5)
    for victim in VICTIMS:
        found += withstand(victim, folder / victim.name.replace(" ", "-"), flips // len(VICTIMS), chance)
    figures.table("damaged files", found.total())
    figures.at_most("damaged files that give another answer without a word", found["other"], 0)
    figures.table("damaged files that end in a traceback", found["raw"])


if __name__ == "__main__":
    main(measure)
