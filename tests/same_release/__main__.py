"""Does every shipped catalog still give the same release? `python -m tests.same_release <revision>` asks it.

    python -m tests.same_release BEFORE [--tolerance 0] [--only NAME ...]

Publishes every catalog with the code of an older revision and with the working tree, without noise, with a fixed key
(driver.py), and compares what was made: each table row by row, each JSON value by value, the count of draws at each
noise scale, covariances of answers under random masks, and the answers to some questions with their intervals. Where
a release names itself by its random id, a fixed word stands in. What the older revision made is kept below
build/same-release/ for the next run.

A catalog of the older revision is read by the older code and today's by today's; both see the same raw rows
(stars.py). Catalogs that lie in one revision alone are named and left out. `catalogs/` adds those mechanisms that no
shipped catalog asks for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from dpsql.release import FORMAT

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
KEEP = ROOT / "build" / "same-release"
LIMIT_SECONDS = 600

RENAMED_META: dict[str, str] = {}
"""Keys of `meta` (dotted paths, list positions left out) that were renamed on purpose: before -> now.
Nothing and an empty list count as left out, before and now."""

GONE_META = {"bounding.put_back"}
"""Keys that were taken out on purpose: with `row_weighting: mar`, rows that slots cut are never put back."""


class Tree(NamedTuple):
    """One revision's files, and where its releases go."""

    code: Path
    out: Path


class Difference(Exception):
    """The first difference of two releases, in words."""


# ---------------------------------------------------------------------------------------------------- making


def checked_out(revision: str) -> Tree:
    """The files of a revision, exported once."""
    full = _git("rev-parse", f"{revision}^{{commit}}").decode().strip()
    code = KEEP / full / "code"
    if not code.exists():
        partial = KEEP / full / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        with tarfile.open(fileobj=BytesIO(_git("archive", full))) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(code)
    return Tree(code, KEEP / full / "made")


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], check=True, capture_output=True).stdout


def catalogs(tree: Tree) -> dict[str, Path]:
    """Every shipped catalog, and those that are there for this comparison alone."""
    own = tree.code / "tests" / "same_release" / "catalogs"
    extra = own if own.is_dir() else HERE / "catalogs"
    return {
        path.stem: path for folder in (tree.code / "catalog", extra) for path in sorted(folder.glob("*.yaml"))
    }


def make(tree: Tree, catalog: Path, stars: Path) -> Path:
    """Run a revision's own driver on a catalog; today's where it has none, or has one that fails.

    Raises:
        Difference: the driver failed or took too long.
    """
    own, today = tree.code / "tests" / "same_release" / "driver.py", HERE / "driver.py"
    if not own.exists():
        return _driven(tree, today, catalog, stars)
    try:
        return _driven(tree, own, catalog, stars)
    except Difference:
        if own.read_bytes() == today.read_bytes():
            raise
        return _driven(tree, today, catalog, stars)


def _driven(tree: Tree, driver: Path, catalog: Path, stars: Path) -> Path:
    """The folder in which a driver left its release, now or in an earlier run."""
    questions = HERE / "questions.sql"
    recipe = b"".join(path.read_bytes() for path in (driver, catalog, questions, HERE / "stars.py"))
    out = tree.out / f"{catalog.stem}-{hashlib.sha256(recipe + str(stars).encode()).hexdigest()[:12]}"
    if (out / "done").exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    (out / "data").symlink_to(stars / "shop")
    environment = {
        **os.environ, "PYTHONPATH": str(tree.code), "DPSQL_DATA": str(stars / "real"), "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0",
    }  # fmt: skip
    command = [sys.executable, str(driver), str(catalog), str(out), str(questions)]
    try:
        subprocess.run(command, check=True, cwd=tree.code, env=environment, capture_output=True, text=True,
                       timeout=LIMIT_SECONDS)  # fmt: skip
    except subprocess.CalledProcessError as error:
        raise Difference(f"cannot be made: {error.stderr.strip().splitlines()[-1]}") from error
    except subprocess.TimeoutExpired as error:
        raise Difference(f"takes more than {LIMIT_SECONDS} s") from error
    (out / "done").touch()
    return out


# ------------------------------------------------------------------------------------------------- comparing


def compare(before: Path, now: Path, tolerance: float) -> None:
    """Compare two folders that a driver made.

    Raises:
        Difference: at the first one.
    """
    files = [_files(out) for out in (before, now)]
    for name in sorted(files[0].keys() ^ files[1].keys()):
        raise Difference(f"{name}: only {'before' if name in files[0] else 'now'}")
    for name, path in files[0].items():
        both = path, files[1][name]
        if name.endswith(".json"):
            pairs = zip(both, (before, now), strict=True)
            _same_value(
                name, *(_decoded(file.read_text(), _release_id(out)) for file, out in pairs), tolerance
            )
        elif name.endswith(".parquet"):
            _same_tables(name, both, [""], tolerance)
        else:
            _same_databases(name, both, tolerance)


def _files(out: Path) -> dict[str, Path]:
    """What is compared: the public side. A manifest's hashes follow from the files that it names."""
    own = [out / name for name in ("plan.json", "scales.json", "answers.json", "covariances.json")]
    release = out / "release.dpsql"
    inside = sorted(p for p in release.rglob("*") if p.is_file()) if release.is_dir() else [release]
    kept = [path for path in own + inside if path.exists() and path.name != "manifest.json"]
    return {str(path.relative_to(out)): path for path in kept}


def _release_id(out: Path) -> str:
    """The random id by which a release names itself."""
    release = out / "release.dpsql"
    if release.is_dir():
        return str(json.loads((release / "manifest.json").read_text())["release_id"])
    with duckdb.connect(str(release), read_only=True) as connection:
        found = connection.execute("SELECT value FROM meta WHERE key = 'release_id'").fetchall()
    return str(json.loads(found[0][0]))


def _decoded(text: str, release_id: str) -> Any:
    return json.loads(text.replace(release_id, "RELEASE-ID"))


def _same_databases(name: str, both: tuple[Path, Path], tolerance: float) -> None:
    """Two release files, `meta` first: what it says explains most other differences."""
    metas, tables = [], []
    for path in both:
        with duckdb.connect(str(path), read_only=True) as connection:
            tables.append({row[0] for row in connection.execute("SHOW TABLES").fetchall()})
            rows = dict(connection.execute("SELECT key, value FROM meta").fetchall())
        own = str(json.loads(rows["release_id"]))
        metas.append({key: _decoded(value, own) for key, value in rows.items()})
    _same_value(f"{name} meta", _renamed(metas[0]), _filled(metas[1]), tolerance)
    for table in sorted(tables[0] ^ tables[1]):
        raise Difference(f"{name}: table {table} only {'before' if table in tables[0] else 'now'}")
    _same_tables(name, both, sorted(tables[0] - {"meta"}), tolerance)


def _filled(value: Any) -> Any:
    """A `meta` without what is None or an empty list."""
    if isinstance(value, list):
        return [_filled(part) for part in value]
    if not isinstance(value, dict):
        return value
    return {key: _filled(part) for key, part in value.items() if part not in (None, [])}


def _renamed(value: Any, path: str = "") -> Any:
    """The older `meta` under today's names."""
    if path == "format":
        return FORMAT
    if isinstance(value, list):
        return [_renamed(part, path) for part in value]
    if not isinstance(value, dict):
        return value
    renamed = {}
    for key, part in _filled(value).items():
        whole = f"{path}.{key}" if path else key
        if whole in GONE_META:
            continue
        new = RENAMED_META[whole].rsplit(".", 1)[-1] if whole in RENAMED_META else key
        renamed[new] = _renamed(part, whole)
    return _with_reading(renamed) if path == "statistics" else renamed


def _with_reading(statistic: dict[str, Any]) -> dict[str, Any]:
    """What an older statistic said by `joint`, the number of its view's own model: how it is read, and of what."""
    if "reading" in statistic:
        return statistic
    joint = statistic.pop("joint", None)
    models = statistic.get("axes", []) if joint is None else [joint]
    filled: dict[str, Any] = _filled({"reading": "product" if joint is None else "plane", "models": models})
    return statistic | filled


def _same_value(where: str, before: Any, now: Any, tolerance: float) -> None:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            if key not in before or key not in now:
                raise Difference(f"{where}: {key} only {'before' if key in before else 'now'}")
            _same_value(f"{where}: {key}", before[key], now[key], tolerance)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            raise Difference(f"{where}: {len(before)} entries before, {len(now)} now")
        for i, (first, second) in enumerate(zip(before, now, strict=True)):
            label = first.get("question", i) if isinstance(first, dict) else i
            _same_value(f"{where}[{label}]", first, second, tolerance)
    elif before != now and not _close(before, now, tolerance):
        raise Difference(f"{where}: {_short(before)} before, {_short(now)} now{_apart(before, now)}")


def _close(before: Any, now: Any, tolerance: float) -> bool:
    """Floats only: an integer is exact."""
    if not (isinstance(before, float) and isinstance(now, float)):
        return False
    return (before != before and now != now) or abs(before - now) <= tolerance * max(abs(before), abs(now))


def _apart(before: Any, now: Any) -> str:
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (before, now))
    if not numbers or not before:
        return ""
    return f" ({abs(now - before) / abs(before):.1g} apart)"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _same_tables(name: str, both: tuple[Path, Path], tables: list[str], tolerance: float) -> None:
    """Tables of two files as bags of rows."""
    with duckdb.connect() as connection:
        sources = [_attached(connection, path, f"side{i}") for i, path in enumerate(both)]
        for table in tables:
            label = f"{name} {table}".strip()
            sides = [source.format(table=table) for source in sources]
            _same_rows(connection, label, sides[0], sides[1], tolerance)


def _attached(connection: duckdb.DuckDBPyConnection, path: Path, side: str) -> str:
    if path.suffix == ".parquet":
        return f"read_parquet('{path}')"
    connection.execute(f"ATTACH '{path}' AS {side} (READ_ONLY)")
    return side + '."{table}"'


def _same_rows(
    connection: duckdb.DuckDBPyConnection, label: str, before: str, now: str, tolerance: float
) -> None:
    shapes = [connection.execute(f"DESCRIBE SELECT * FROM {side}").fetchall() for side in (before, now)]
    columns = [[(row[0], row[1]) for row in shape] for shape in shapes]
    _same_value(f"{label}: columns", *[[f"{n} {t}" for n, t in side] for side in columns], tolerance)
    sizes = [connection.execute(f"SELECT count(*) FROM {side}").fetchall()[0][0] for side in (before, now)]
    if sizes[0] != sizes[1]:
        raise Difference(f"{label}: {sizes[0]} rows before, {sizes[1]} now")
    differing = f"SELECT * FROM {before} EXCEPT ALL SELECT * FROM {now}"
    count = connection.execute(f"SELECT count(*) FROM ({differing})").fetchall()[0][0]
    if not count:
        return
    order = ", ".join(str(i + 1) for i in _exact_first(columns[0]))
    sides = [f"({a} EXCEPT ALL {b}) ORDER BY {order}" for a, b in _both_ways(before, now)]
    rows = [connection.execute(side).fetchall() for side in sides]
    names = [column for column, _ in columns[0]]
    for first, second in zip(*rows, strict=True):
        for column, a, b in zip(names, first, second, strict=True):
            if a != b and not _close(a, b, tolerance):
                place = ", ".join(f"{n} {v}" for n, v in zip(names, first, strict=True) if n != column)[:80]
                raise Difference(
                    f"{label}: {count} of {sizes[0]} rows differ, first {column} {_short(a)} before, {_short(b)} now"
                    f"{_apart(a, b)} where {place}"
                )


def _both_ways(before: str, now: str) -> Iterator[tuple[str, str]]:
    yield f"SELECT * FROM {before}", f"SELECT * FROM {now}"
    yield f"SELECT * FROM {now}", f"SELECT * FROM {before}"


def _exact_first(columns: list[tuple[str, str]]) -> list[int]:
    """Positions to sort by: rows of two sides meet where floats are close if the exact columns come first."""
    values = ("value", "estimate", "nonnegative")
    return sorted(range(len(columns)), key=lambda i: (columns[i][1] == "DOUBLE", columns[i][0] in values, i))


# ------------------------------------------------------------------------------------------------------ main


def main(arguments: list[str] | None = None) -> int:
    """Print one line a catalog and the figure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before")
    parser.add_argument(
        "--tolerance", type=float, default=0.0, help="relative, of floats; integers are exact"
    )
    parser.add_argument("--only", nargs="*", default=())
    given = parser.parse_args(arguments)
    before, now = checked_out(given.before), Tree(ROOT, KEEP / "now")
    shutil.rmtree(now.out, ignore_errors=True)
    stars = _stars()
    old, new = catalogs(before), catalogs(now)
    names = [name for name in sorted(old.keys() | new.keys()) if not given.only or name in given.only]
    with ThreadPoolExecutor(2) as pool:
        lines = list(pool.map(lambda name: _line(name, before, now, old, new, stars, given.tolerance), names))
    differ, left_out = sum(line.differs for line in lines), sum(line.left_out for line in lines)
    compared = len(lines) - left_out
    held = differ == 0 and compared > 0
    print(
        f"figure same-release: {differ} of {compared} differ (<= 0) {'ok' if held else 'short'}", flush=True
    )
    return 0 if held else 1


class Line(NamedTuple):
    """What became of one catalog."""

    differs: bool
    left_out: bool


def _stars() -> Path:
    """The raw rows, made once for each way of making them."""
    recipe = (HERE / "stars.py").read_bytes() + os.environ.get("DPSQL_DATA", "").encode()
    folder = KEEP / f"stars-{hashlib.sha256(recipe).hexdigest()[:12]}"
    if not folder.exists():
        from tests.same_release.stars import make_stars

        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        make_stars(partial)
        partial.rename(folder)
    return folder


def _line(
    name: str,
    before: Tree,
    now: Tree,
    old: dict[str, Path],
    new: dict[str, Path],
    stars: Path,
    tolerance: float,
) -> Line:
    """Make both, compare, print."""
    if name not in old or name not in new:
        return _said(name, f"left out: only {'before' if name in old else 'now'}", Line(False, True))
    if "${DPSQL_DATA}" in new[name].read_text() and not (stars / "real").exists():
        return _said(name, "skipped: DPSQL_DATA names no folder of real stars", Line(False, True))
    try:
        compare(make(before, old[name], stars), make(now, new[name], stars), tolerance)
    except Difference as difference:
        return _said(name, str(difference), Line(True, False))
    return _said(name, f"same{_refusals(now.out, name)}", Line(False, False))


def _refusals(out: Path, name: str) -> str:
    """How many questions were refused on both sides: they compare nothing."""
    answers = [entry for path in out.glob(f"{name}-*/answers.json") for entry in json.loads(path.read_text())]
    refused = sum("error" in entry for entry in answers)
    return f" ({refused} questions refused)" if refused else ""


def _said(name: str, text: str, line: Line) -> Line:
    print(f"{name:24} {text}", flush=True)
    return line


if __name__ == "__main__":
    sys.exit(main())
