"""A release as Parquet files, for tools that speak no SQL: one file a view, one row a combination of leaves.

| column | says |
|---|---|
| `age`, `region`, .. | the leaf of each axis in words: `20 to 24`, `north`, `(NULL)` |
| `age_low`, `age_high` | its least and its largest value, where it is a number, a date or a time |
| `count`, `sum_amount`, .. | what the view counts and sums there |
| `.._stderr`, `.._low`, `.._high` | half of its 95% interval / 1.96, and the interval's ends; an open end is NULL |

Numbers and errors are those of `SELECT .. GROUP BY` over all of the view's axes: the same plan, answered leaf by leaf.
They go out in parts of `MOST_ROWS` rows, so that a large view needs little more memory than a small one; what would
take many minutes is refused.

| a column of the axis | is shown as |
|---|---|
| the first, if it is a number, a date or a time | its range in words, its least and its largest value |
| another such | its least and largest value; itself where these are one |
| text that each leaf has one of | itself |
| text that a leaf has several of | not at all |

The leaves for NULL, for rows without a partner and for values outside of the domain are named in brackets.

**Privacy**: post-processing of a release; costs nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt
import yaml

from dpsql.catalog.base import PEOPLE, MeasureName
from dpsql.errors import InterfaceError, NotSupportedError
from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.recombine import answer_terms
from dpsql.executor.run import run
from dpsql.executor.small_numbers import REASON, is_few
from dpsql.faults import ANEW, machine
from dpsql.federation.session import OpenReleases
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR, ErrorFunction
from dpsql.planner.answerability import entropy_caveat, estimates_kind, unanswerable_reason
from dpsql.planner.axis_query import AxisCells
from dpsql.planner.block import Block, one
from dpsql.planner.leaf_values import AxisQuery, bounds_of
from dpsql.planner.notes import Note, bias_notes, reported_notes
from dpsql.planner.plan import ReleaseView, ViewPlan, needed_measures, views_of
from dpsql.planner.schema import TRUE, Term
from dpsql.progress import Progress, Stage
from dpsql.release import AxisMeta, ColumnMeta, Release
from dpsql.release.promises import FREE, promise_words
from dpsql.row_expressions import free_name, identifier, literal

FORMAT = "dpsql-export-1"
SCHEMA, DBT = "schema.json", "sources.yml"
MOST_ROWS, MOST_ENTRIES = 2**16, 2**23
"""Rows, and entries of the leaf masks, that are worked out at once."""
MOST_WORK = 2**30
"""Cells of an export, each times the leaves of all axes of its view: a minute or two a measure."""
READ_FIRST = (
    "Every number is an estimate: it has noise, may be below 0, and is not a count of real rows.",
    "Its error is the column ending in _stderr; the columns ending in _low and _high are the ends of its interval. "
    "Where one of these is NULL, nothing bounds the number on that side: do not use it.",
    "Errors of different rows are not independent: the error of a sum, a mean or a difference of rows does not follow "
    'from these columns. Ask the release in SQL, which knows it: dpsql query RELEASE "SELECT .., DP_STDERR(COUNT(*))".',
    "A sum of rows is unbiased; that of people, each counted once, is not a number of people.",
    "Views count the same rows: do not add numbers of different files.",
)
VALUES: tuple[tuple[str, ErrorFunction], ...] = (("_stderr", STDERR), ("_low", LOW), ("_high", HIGH))


TEXTS = ("VARCHAR", "BOOLEAN")
SPECIAL = {"null_leaf": "(NULL)", "missing_leaf": "(MISSING)", "other_leaf": "(OTHER)"}
MEANS = {
    "null_leaf": "the value is NULL",
    "missing_leaf": "there is no row that the foreign key names",
    "other_leaf": "outside the catalog's domain",
}


class LeafColumn(NamedTuple):
    """A column about the leaves of one axis.

    Args:
        name: unique within its view.
        type: DuckDB's.
        means: in words.
        values: one for each leaf.
    """

    name: str
    type: str
    means: str
    values: tuple[Any, ...]


LeafEnds = Mapping[int, tuple[Any, Any, int]]
"""Ordinary leaf -> least and largest value of a column in it, and how many there are."""


def leaf_columns(release: Release, axes: Sequence[int]) -> tuple[tuple[LeafColumn, ...], ...]:
    """The columns of some axes.

    Args:
        release: an open release.
        axes: their ids, those of a view.

    Returns:
        For each axis its columns; names do not repeat, whatever their case.
    """
    described_axes = [_leaf_ends(release, axis) for axis in axes]
    often = Counter(column.column.lower() for described in described_axes for column, _ in described)
    seen = Counter[str]()
    columns_by_axis = []
    for number, described in zip(axes, described_axes, strict=True):
        columns = []
        for place, (column, ends) in enumerate(described):
            name = column.column
            if often[name.lower()] > 1:  # one column by two foreign keys, or of two tables
                name = "_".join((*(column.path or (column.table,)), name))
            for leaf_column in _shown(release.axes[number], column, ends, name, first=place == 0):
                low_name = leaf_column.name.lower()
                seen[low_name] += 1
                again = seen[low_name] > 1  # another column has the name
                columns.append(
                    leaf_column._replace(name=f"{leaf_column.name}_{seen[low_name]}")
                    if again
                    else leaf_column
                )
        columns_by_axis.append(tuple(columns))
    return tuple(columns_by_axis)


def _leaf_ends(release: Release, number: int) -> list[tuple[ColumnMeta, LeafEnds]]:
    """The columns of an axis; a foreign key that repeats a key is left out."""
    axis, axis_columns = release.axes[number], list[tuple[ColumnMeta, LeafEnds]]()
    for column in axis.columns:
        bounds = bounds_of(axis, column.name)
        if bounds[0] != column:
            continue  # the upper end of an axis whose atoms are whole leaves
        low, high = (identifier(bound.name) for bound in bounds)
        text = f"SELECT leaf, min({low}), max({high}), count(DISTINCT {low}) FROM axis_{number}"
        rows = run(release, f"{text} WHERE kind = 0 GROUP BY leaf").rows
        ends = {leaf: (first, last, values) for leaf, first, last, values in rows}
        several = column.type in TEXTS and any(values > 1 for _, _, values in ends.values())
        twin = any(ends == other and column.column == earlier.column for earlier, other in axis_columns)
        axis_columns += [] if several or twin else [(column, ends)]
    return axis_columns


def _shown(axis: AxisMeta, column: ColumnMeta, ends: LeafEnds, name: str, *, first: bool) -> list[LeafColumn]:
    """Columns of an export file for one axis column; the first column of an axis always has labels, to tell
    special leaves apart."""
    means = f"{column.table}.{column.column}" + (f": {column.description}" if column.description else "")
    words = {leaf: _range(low, high) for leaf, (low, high, _) in ends.items()}
    special = [f"{SPECIAL[place]}: {MEANS[place]}" for place in MEANS if getattr(axis, place) is not None]
    described = f"{means} ({'; '.join(special)})" if special else means
    label = LeafColumn(name, "VARCHAR", described, _labels(axis, words))
    if column.type in TEXTS:
        return [label]
    low, high = (
        tuple(ends[leaf][end] if leaf in ends else None for leaf in range(axis.leaves)) for end in (0, 1)
    )
    if not first and low == high:
        return [LeafColumn(name, column.type, means, low)]
    return [
        *([label] if first else []),
        LeafColumn(f"{name}_low", column.type, f"least value of {name}, which belongs to it", low),
        LeafColumn(f"{name}_high", column.type, f"largest value of {name}, which belongs to it", high),
    ]


def _range(first: object, last: object) -> str:
    """A leaf in words.

    >>> _range(20, 24), _range(20, 20), _range(None, None)
    ('20 to 24', '20', '')
    """
    if first is None:
        return ""
    return str(first) if first == last else f"{first} to {last}"


def _labels(axis: AxisMeta, words: dict[int, str]) -> tuple[str, ...]:
    """A label for each leaf; a special one that an ordinary leaf has too gets more brackets."""
    ordinary = set(words.values())
    for place, label in SPECIAL.items():
        leaf = getattr(axis, place)
        if leaf is not None:
            words[leaf] = label
            while words[leaf] in ordinary:
                words[leaf] = f"({words[leaf]})"
    return tuple(words.get(leaf, "") for leaf in range(axis.leaves))


def export(
    opened: OpenReleases,
    folder: Path,
    views: Sequence[str],
    level: float,
    told: Progress,
    *,
    dbt: bool = False,
) -> dict[str, Any]:
    """Write the views of a release as Parquet files, and a schema beside them.

    Args:
        opened: one open release.
        folder: to make.
        views: which ones; all if empty.
        level: of the intervals.
        told: called with each step.
        dbt: whether a source file of dbt is written too.

    Returns:
        What the schema holds.

    Raises:
        InterfaceError: several releases, a folder that exists, or a view that there is not.
        NotSupportedError: more work than `MOST_WORK`, or no view whose cells are held one by one.
        MachineFault: the folder cannot be written.
    """
    if len(opened.releases) > 1:
        raise InterfaceError(
            "cells of several releases are not one table",
            hint="export each into a folder of its own; `dpsql query` asks them together",
        )
    if dbt and re.search("[{}]", str(folder)):
        raise InterfaceError("dbt takes braces in a path for a template", hint="choose a folder without them")
    if folder.exists():
        raise InterfaceError(f"{folder} exists", hint="choose another folder, or remove it")
    answerer = opened.answerers[0] if opened.router is None else opened.router.standing.candidates[0].answerer
    tasks, left_out = _tasks(answerer, views)
    with machine("the tables were not written", ANEW), new_folder(folder) as draft:
        about = {
            "format": FORMAT,
            "read_first": list(READ_FIRST),
            "release": answerer.release.name,
            "release_id": answerer.release.meta.release_id,
            "description": answerer.release.catalog.description,
            "promise": [*promise_words(answerer.release.meta.privacy), FREE],
            "level": level,
        }
        files = [task.write(draft, about, told, (i + 1, len(tasks))) for i, task in enumerate(tasks)]
        schema = {**about, "views": files, "left_out": left_out}
        text = json.dumps(schema, indent=2, ensure_ascii=False)
        (draft / SCHEMA).write_text(f"{text}\n", encoding="utf-8")
        if dbt:
            (draft / DBT).write_text(dbt_sources(schema, folder), encoding="utf-8")
    return schema


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that is there whole once the block has ended, and not at all where it fails.

    Yields:
        Where to write its files meanwhile.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield draft
        draft.chmod(0o755)
        draft.rename(folder)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def dbt_sources(schema: Mapping[str, Any], folder: Path) -> str:
    """The files as a source of dbt-duckdb, whose models name them by `source(release, view)`.

    Args:
        schema: as `export` returns it.
        folder: of the files, as dbt finds it from its project's folder.

    Returns:
        YAML. What dbt would take for a template is taken apart.
    """
    tables = [
        {
            "name": Path(view["file"]).stem,
            "description": _no_template(
                "\n".join([f"{view['view']}: rows of {view['table']}", *view["notes"]])
            ),
            "meta": {"external_location": f"read_parquet({literal(str(folder / view['file']))})"},
            "columns": [
                {"name": column["name"], "description": _no_template(column["means"])}
                for column in view["columns"]
            ],
        }
        for view in schema["views"]
    ]
    head = [schema["description"], *schema["read_first"], *schema["promise"]]
    source = {
        "name": schema["release"],
        "description": _no_template("\n".join(text for text in head if text)),
        "meta": {"release_id": schema["release_id"], "level": schema["level"]},
        "tables": tables,
    }
    return yaml.safe_dump({"version": 2, "sources": [source]}, sort_keys=False, allow_unicode=True, width=120)


def _no_template(text: str) -> str:
    """Words of a catalog that dbt does not run.

    >>> _no_template("{{ env_var('KEY') }} and {% set a = 1 %}")
    "{ { env_var('KEY') }} and { % set a = 1 %}"
    """
    return re.sub(r"\{(?=[{%#])", "{ ", text)


def _tasks(answerer: ReleaseEngine, wanted: Sequence[str]) -> tuple[list[ViewFile], list[str]]:
    """The views to write, and what of the release no file holds, each with the reason."""
    release = answerer.release
    names = {view.name for view in views_of(release)}
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise InterfaceError(f"there is no view {unknown[0]}", hint=f"there are {', '.join(sorted(names))}")
    chosen = [view for view in views_of(release) if not wanted or view.name in wanted]
    sizes = [[release.axes[axis].leaves for axis in view.axes] for view in chosen]
    work = [prod(leaves) * sum(leaves) for leaves in sizes]
    if sum(work) > MOST_WORK:
        largest = int(np.argmax(work))
        raise NotSupportedError(
            f"view {chosen[largest].name} has {prod(sizes[largest])} cells, too many to write out",
            hint="choose other views by --view NAME, and ask this one in SQL",
        )
    tasks: list[ViewFile] = []
    left_out: list[str] = []
    for view in chosen:
        task = ViewFile(view, answerer, {task.file for task in tasks})
        tasks += [task] if task.terms else []
        left_out += task.left_out
    if not tasks:
        raise NotSupportedError("no view has cells to export: " + "; ".join(left_out), hint="ask in SQL")
    return tasks, left_out


class ViewFile:
    """A view that is to be written: who answers it, what is asked of it, and how its leaves are called.

    Args:
        view: the view.
        answerer: of its release.
        files: names that other views have.
    """

    def __init__(self, view: ReleaseView, answerer: ReleaseEngine, files: set[str]) -> None:
        preferred = all(statistic.preferred for statistic in view.statistics.values())
        positive = answerer.release.nonnegative is None and preferred
        self.view, self.release = view, answerer.positive.release if positive else answerer.release
        self.sizes = tuple(self.release.axes[axis].leaves for axis in view.axes)
        self.axes = leaf_columns(self.release, view.axes)
        plain = re.sub(r"[^\w-]+", "_", view.name).strip("_") or "view"
        self.file = free_name({file.removesuffix(".parquet").lower() for file in files}, plain) + ".parquet"
        terms, why = list[Term](), list[str]()
        for measure in view.statistics:
            term = Term(measure)
            if not needed_measures([term], view):
                why.append(f"{view.name}: sums of {measure} need a count that it does not have")
                continue
            plans = (self.plan(ranges) for ranges in _parts(self.sizes))
            reason = next(
                (refusal for plan in plans if (refusal := unanswerable_reason(plan, [term], self.release))),
                "",
            )
            terms += [] if reason else [term]
            why += [reason] if reason else []
        taken = {column.name.lower() for axis in self.axes for column in axis}
        names: list[str] = []
        for term in terms:
            names.append(free_name(taken, _called(term.measure)))
            taken.add(names[-1].lower())
        self.terms, self.names, self.left_out = tuple(terms), names, list(dict.fromkeys(why))

    def plan(self, ranges: Sequence[range]) -> ViewPlan:
        """A plan that groups by the leaves of every axis."""
        cells = []
        for leaves, size in zip(ranges, self.sizes, strict=True):
            group = np.arange(len(leaves))
            keys = tuple((leaf,) for leaf in leaves)
            ones = np.ones(len(leaves))
            cells.append(
                AxisCells(
                    size, keys, ("BIGINT",), group, np.zeros_like(group), group + leaves.start, ones, ((),)
                )
            )
        questions = tuple(AxisQuery(axis, ()) for axis in self.view.axes)
        return ViewPlan(self.view, questions, tuple(cells), TRUE, ((),) * len(cells))

    def write(
        self, folder: Path, about: Mapping[str, Any], progress: Progress, far: tuple[int, int]
    ) -> dict[str, Any]:
        """The file: parts go into a database on disk, and from there, with the names of leaves, into Parquet.

        Returns:
            What the schema and the file's own metadata say of it.
        """
        progress(Stage("writing", self.view.name, {"rows": prod(self.sizes)}, *far))
        named = [f"{name}{end}" for name in self.names for end in ("", *(end for end, _ in VALUES))]
        leaves = [f"leaf_{i}" for i in range(len(self.sizes))]
        work, described = folder / "work.duckdb", self.described()
        database = duckdb.connect(str(work), config={"threads": 1, "memory_limit": "1GB"})
        try:
            for i, columns in enumerate(self.axes):
                fields = "".join(f", {identifier(column.name)} {column.type}" for column in columns)
                database.execute(f"CREATE TABLE axis_{i} (leaf BIGINT{fields})")
                rows = [
                    [leaf, *row]
                    for leaf, row in enumerate(zip(*(column.values for column in columns), strict=True))
                ]
                database.executemany(f"INSERT INTO axis_{i} VALUES (?{', ?' * len(columns)})", rows)
            for number, ranges in enumerate(_parts(self.sizes)):
                cells = self.cells(ranges, about["level"])
                database.register("part", dict(zip([*leaves, *named], cells, strict=True)))
                database.execute(
                    "INSERT INTO cells FROM part" if number else "CREATE TABLE cells AS FROM part"
                )
                database.unregister("part")
            picked = [f"a{i}.{identifier(c.name)}" for i, axis in enumerate(self.axes) for c in axis]
            for name in map(identifier, named):
                picked.append(f"CASE WHEN isfinite({name}) THEN {name} END AS {name}")
            joined = "".join(f" JOIN axis_{i} AS a{i} ON a{i}.leaf = leaf_{i}" for i in range(len(leaves)))
            order = f" ORDER BY {', '.join(leaves)}" if leaves else ""
            target, told = literal(str(folder / self.file)), literal(json.dumps({**about, **described}))
            database.execute(
                f"COPY (SELECT {', '.join(picked)} FROM cells{joined}{order}) TO {target} "
                f"(FORMAT parquet, KV_METADATA {{dpsql: {told}}})"
            )
        finally:
            database.close()
            work.unlink(missing_ok=True)
        return described

    def cells(self, ranges: Sequence[range], level: float) -> list[npt.NDArray[Any]]:
        """Leaf numbers of a part, then each measure's value and errors."""
        plan = self.plan(ranges)
        index = tuple(np.indices(plan.shape).reshape(len(plan.shape), prod(plan.shape)))
        answered = answer_terms(plan, self.terms, index, self.release)
        columns: list[npt.NDArray[Any]] = [
            group + leaves.start for group, leaves in zip(index, ranges, strict=True)
        ]
        for term in self.terms:
            numbers, few = Composite.of_form(one(term), answered), is_few(term, answered)
            values = [numbers.central()]
            values += [
                error.values(numbers, DEFAULT_LEVEL if error is STDERR else level) for _, error in VALUES
            ]
            columns += [np.where(few, np.nan, column) for column in values]
        return columns

    def described(self) -> dict[str, Any]:
        """The view and the table whose rows it counts, the file, its combinations of leaves and columns, and notes."""
        release, view = self.release, self.view
        plan = self.plan([range(0, 1) for _ in self.sizes])
        block = Block(view.of, (), (), TRUE, (), tuple(one(term) for term in self.terms))
        notes = [*reported_notes(release.meta, block), *bias_notes(plan, self.terms, release)]
        notes += [Note(REASON.format(release.min_people))] * (release.min_people > 0)
        positive = any(release.estimate(s.id) == "nonnegative" for s in view.statistics.values())
        columns = [(c.name, c.type, c.means) for axis in self.axes for c in axis]
        for name, term in zip(self.names, self.terms, strict=True):
            columns.append((name, "DOUBLE", _means(term.measure, release)))
            columns += [(name + end, "DOUBLE", error.summary) for end, error in VALUES]
        return {
            "view": view.name, "table": view.of, "file": self.file, "rows": prod(self.sizes),
            "estimates": estimates_kind(positive, bool(entropy_caveat(plan, self.terms, release))),
            "columns": [dict(zip(("name", "type", "means"), column, strict=True)) for column in columns],
            "notes": list(dict.fromkeys(note.text for note in notes)),
        }  # fmt: skip


def _called(measure: MeasureName) -> str:
    """The column of a measure.

    >>> _called(MeasureName("count")), _called(MeasureName("count(sales.amount)"))
    ('count', 'count_amount')
    """
    return f"{'count' if measure.is_count else 'sum'}_{measure.column}" if measure.column else str(measure)


def _parts(sizes: Sequence[int]) -> Iterator[tuple[range, ...]]:
    """The cells of a view in parts, the last axis varying fastest."""
    steps, rows = [], 1
    for size in reversed(sizes):
        step = max(1, min(size, MOST_ROWS // rows, MOST_ENTRIES // max(size, 1)))
        steps.append(step)
        rows = rows * step if step == size else MOST_ROWS  # axes further out go leaf by leaf
    ranges = [
        [range(a, min(a + step, size)) for a in range(0, size, step)]
        for size, step in zip(sizes, reversed(steps), strict=True)
    ]
    yield from product(*ranges)


def _means(measure: MeasureName, release: Release) -> str:
    """Description of a measure: what its column counts or sums."""
    if measure == PEOPLE:
        return f"how many different {release.catalog.privacy.unit.table}"
    if measure.is_count:
        return "how many rows" + (f" with a value of {measure.summed}" if measure.summed else "")
    return f"the sum of {measure}"
