"""Make one catalog's release with the code of one revision: no noise, fixed key, fixed seeds.

    python tests/same_release/driver.py CATALOG OUT [QUESTIONS]        in the revision's own folder

`tests.same_release.compare` runs it once with an older revision and once with the working tree. It goes through as few
names of the package as it can. A change that renames one of them mends it here, in the same commit: each revision
brings its own driver, and only its command line and what it leaves in OUT are fixed:

| in OUT | holds |
|---|---|
| `release.dpsql` | the release, a file or a stream's folder |
| `plan.json` | of a local collection: its public plan |
| `scales.json` | of a central release: how many draws of each noise scale were asked for |
| `answers.json` | for each question: rows with standard errors and intervals, or the error |
| `covariances.json` | for each statistic and the next one: covariances of answers under `MASKS` random masks |

Statements in a file of SQL with the catalog's name are bought. A stream's batch comes from `late/<day>.parquet` where
the raw rows have that file. Reports about a reported column are made here, by three people out of four.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dpsql.noise import ZeroNoise

KEY = bytes(range(32))
SEED = 11
NOW = datetime(2030, 1, 1)
BATCHES = 5
MASKS = 200
"""Half of them ranges of leaves, half any sets of leaves."""
RELEASE = "release.dpsql"


@dataclass(frozen=True)
class CountedZeroNoise:
    """Zeros, and a count of the draws asked for at each scale, so that a change of scale shows although no noise does.

    A scale is kept as the exact law, not as the way it is written: units over denominator of a Laplace draw, sigma
    squared of a Gaussian one. The order and the grouping of the draws may change.
    """

    draws: Counter[str] = field(default_factory=Counter)
    insecure: ClassVar[bool] = True

    def laplace(self, units: Any, denominator: int, *exact: Any) -> Any:
        """What a source without noise answers."""
        values, counts = np.unique(np.asarray(units), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.draws[f"laplace {Fraction(value, int(denominator))}"] += count
        return ZeroNoise().laplace(units, denominator, *exact)

    def joint(self, units: Any, denominator: int, bounds: Any, *exact: Any) -> Any:
        """What a source without noise answers."""
        values, counts = np.unique(np.asarray(units), return_counts=True)
        for value, count in zip(values.tolist(), counts.tolist(), strict=True):
            self.draws[f"joint {Fraction(value, int(denominator))} over {list(bounds)}"] += count
        return ZeroNoise().joint(units, denominator, bounds, *exact)

    def trees(self, tree: Any, exact: Any) -> Any:
        """What a source without noise answers."""
        rates = [str(Fraction(rate, tree.denominator)) for rate in tree.rates]
        self.draws[f"trees {list(tree.arities)} {rates} over {list(tree.bounds)}"] += exact.shape[1]
        return ZeroNoise().trees(tree, exact)

    def stored(self, leaf: Any, exact: Any, drawn: Any) -> Any:
        """What a source without noise answers; the trees were counted when they were drawn."""
        return ZeroNoise().stored(leaf, exact, drawn)

    def gaussian(self, sigma2: Fraction, size: int, *exact: Any) -> Any:
        """What a source without noise answers."""
        self.draws[f"gaussian {sigma2}"] += int(size)
        return ZeroNoise().gaussian(sigma2, size, *exact)

    def shown(self, table: Any, people: Any, *names: Any) -> Any:
        """What a source without noise answers."""
        self.draws[f"shown by {table[0]} .. {table[-1]}"] += people.size
        return ZeroNoise().shown(table, people, *names)


def make_release(catalog: Path, out: Path) -> None:
    """Publish, append or collect, whatever the catalog is for."""
    from dpsql.catalog import load_catalog

    loaded = load_catalog(catalog)
    if loaded.collection is not None:
        _collect(catalog, out)
        return
    noise = CountedZeroNoise()
    _report(loaded, out)
    if catalog.with_suffix(".sql").exists():
        _buy(loaded, catalog.with_suffix(".sql"), out, noise)
    elif loaded.stream is not None:
        _append(loaded, out, noise)
    else:
        from dpsql.central.central import publish_release

        publish_release(loaded, out / RELEASE, noise=noise, key=KEY)
    (out / "scales.json").write_text(json.dumps(noise.draws, indent=0, sort_keys=True))


def _append(loaded: Any, out: Path, noise: CountedZeroNoise) -> None:
    """The first batches, day by day; the retail star begins with 2025."""
    from dpsql.streams.publish import Arrival, Chance, append_batch

    for day in range(BATCHES):
        label = (date(2025, 1, 1) + timedelta(days=day)).isoformat()
        late = out / "data" / "late" / f"{label}.parquet"
        source = late if loaded.stream.late.counted and late.exists() else None
        append_batch(loaded, out / RELEASE, Arrival(label, source, now=NOW), Chance(noise, bytes))


def _buy(loaded: Any, statements: Path, out: Path, noise: CountedZeroNoise) -> None:
    """A release of what the statements need."""
    from dpsql.central.central import publish_release
    from dpsql.curator.buy import purchase

    texts = [" ".join(text.split()) for text in statements.read_text().split(";") if text.strip()]
    publish_release(purchase(loaded, texts, Fraction(1)), out / RELEASE, noise=noise, key=KEY)


def _report(loaded: Any, out: Path) -> None:
    """Stored reports about the catalog's reported column: the person's key modulo the number of items."""
    from dpsql.catalog.private_columns import reported_columns
    from dpsql.client.plan import read_plan
    from dpsql.local.mechanisms.channel import channel_of
    from dpsql.local.survey import ReportProvenance, plan_of, write_items

    for column in reported_columns(loaded):
        channel = channel_of(*column.asked)
        answered = ReportProvenance(
            str(column), read_plan(plan_of(loaded, column)).hash.hex(), channel.fingerprint
        )
        items = [(str(key), 0, key % column.spec.leaves) for key in range(6000) if key % 4]
        write_items(out / "reports.parquet", answered, items)


def _collect(catalog: Path, out: Path) -> None:
    """Everybody of the raw star reports, by simulation with a fixed seed, and the reports are counted."""
    import dpsql
    from dpsql.local import run

    reports, plan = out / "reports.parquet", out / "plan.json"
    dpsql.simulate(catalog, reports, plan, seed=SEED)
    run.collect(run.Reports(plan, [reports], KEY, catalog=catalog), out / RELEASE, "same-release")


def ask(questions: list[str], out: Path) -> list[dict[str, Any]]:
    """Each question with its answer, standard errors and 95% intervals; or with the class of its error."""
    import dpsql

    connection = dpsql.connect(out / RELEASE, insecure=True)
    cursor, answers = connection.cursor(), []
    for question in questions:
        try:
            cursor.execute(question)
            rows = sorted(([_plain(value) for value in row] for row in cursor.fetchall()), key=str)
            answers.append({"question": question, "rows": rows})
        except dpsql.Error as error:
            answers.append({"question": question, "error": type(error).__name__})
    connection.close()
    return answers


def covariances(out: Path) -> dict[str, list[float] | str]:
    """Covariances of each statistic's answers with themselves and with the next statistic's.

    Masks that the stored numbers do not add up to have none; a pair that errs independently says so.
    """
    from dpsql.release import open_release

    release, found = open_release(out / RELEASE, insecure=True), dict[str, list[float] | str]()
    for left in range(len(release.statistics)):
        for right in (left, left + 1):
            if right == len(release.statistics):
                continue
            rng = np.random.default_rng(SEED)
            first, second = (_masks(release, statistic, rng) for statistic in (left, right))
            shared = release.shared(left, right)
            both = [
                i for i in range(MASKS)
                if all(
                    release.reading(statistic).takes([[axis[i : i + 1] for axis in masks]])
                    for statistic, masks in ((left, first), (right, second))
                )
            ]  # fmt: skip
            if shared is None:
                found[f"{left}, {right}"] = "independent"
                continue
            pair = [[axis[both] for axis in masks] for masks in (first, second)]
            covariance = shared.covariance(pair[0], pair[1] if right > left else None)
            parts = np.broadcast_arrays(*covariance)
            found[f"{left}, {right}"] = [float(value) for part in parts for value in np.ravel(part)]
    return found


def _masks(release: Any, statistic: int, rng: np.random.Generator) -> list[Any]:
    """Random coverages of leaves, an array (MASKS, leaves) for each axis of a statistic."""
    masks = []
    for axis in release.statistics[statistic].axes:
        leaves = release.axes[axis].leaves
        ends = np.sort(rng.integers(0, leaves + 1, (MASKS, 2)), axis=1)
        places = np.arange(leaves)
        ranges = (ends[:, :1] <= places) & (places < ends[:, 1:])
        sets = rng.random((MASKS, leaves)) < 0.5
        masks.append(np.where(np.arange(MASKS)[:, None] % 2, sets, ranges).astype(np.float64))
    return masks


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | float | str) else str(value)


def questions_of(path: Path, name: str) -> list[str]:
    """The questions below `-- NAME` in a file of SQL."""
    part = re.search(rf"^-- {name}\n(.*?)(?=^-- |\Z)", path.read_text(), re.MULTILINE | re.DOTALL)
    return [] if part is None else [" ".join(text.split()) for text in part[1].split(";") if text.strip()]


def main() -> None:
    """Copy the catalog beside the data, so that its ledger is fresh, and work on the copy."""
    catalog, out = Path(sys.argv[1]), Path(sys.argv[2])
    text = catalog.read_text()
    if "\nsource:" not in text:  # a collection that names no raw rows: those of the simulation
        text = text.replace(
            "\ncollection:", "\nsource: {root: data, tables: {answer: answer.parquet}}\ncollection:"
        )
    copy = out / catalog.name
    copy.write_text(text)
    if catalog.with_suffix(".sql").exists():
        shutil.copy(catalog.with_suffix(".sql"), out)
    make_release(copy, out)
    (out / "covariances.json").write_text(json.dumps(covariances(out), indent=0))
    if len(sys.argv) > 3:
        answers = ask(questions_of(Path(sys.argv[3]), catalog.stem), out)
        (out / "answers.json").write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main()
