"""Open a release: read-only, locked down, checked before the first answer.

The connection can reach nothing but the file: no external access, no extensions, no Python variables,
no temporary files, one thread (faster here than two), and its configuration cannot be changed back.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import duckdb
import numpy as np
from pydantic import ValidationError

from dpsql.errors import CatalogError, ReleaseError
from dpsql.release.format import FORMAT, AxisMeta, Meta, ScaleMeta, StatisticMeta, meta_from_json
from dpsql.release.stream import AsOf, state_file
from dpsql.star import Catalog, catalog_from_json
from dpsql.tree import Tree
from dpsql.variance.kronecker import AxisSplit
from dpsql.variance.model import Reading, Shared
from dpsql.variance.reading import FAMILIES, SHARED, Piece, piece, reading
from dpsql.variance.stack import StackReading

LOCKDOWN: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "2GB",
    "threads": "1",
    "error_on_division_by_zero": "false",  # NULL, as for an average over nobody
    "max_temp_directory_size": "0B",
    "lock_configuration": "true",
}

T = TypeVar("T")
KEPT = 512
"""Questions whose answers an open release keeps."""


@dataclass
class Release:
    """An open release. Cursors of `connection` may be used from several threads, one each.

    Args:
        path: the file.
        connection: read-only DuckDB connection to it.
        meta: the `meta` table.
        nonnegative: whether answers are taken from the non-negative (biased) estimates where they are stored; None
            takes the unbiased ones, and leaves it to whoever answers a whole statement to turn to the others.
        together: of a release in memory: two statistics -> how both err together; of a file nothing, since its
            statistics err independently.
    """

    path: Path
    connection: duckdb.DuckDBPyConnection
    meta: Meta
    nonnegative: bool | None = None
    together: Mapping[tuple[int, int], Reading] = field(default_factory=dict)
    _trees: dict[int, Tree] = field(default_factory=dict)
    _models: dict[int, Piece] = field(default_factory=dict)
    _atoms: dict[int, dict[str, Any]] = field(default_factory=dict)
    _kept: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def axes(self) -> tuple[AxisMeta, ...]:
        """The release's axes; an axis id is a position here."""
        return self.meta.axes

    @property
    def statistics(self) -> tuple[StatisticMeta, ...]:
        """The release's statistics; a statistic's id is its position here."""
        return self.meta.statistics

    @property
    def scales(self) -> dict[str, ScaleMeta]:
        """The scale of each table with `max_ids: auto`, by table."""
        return {scale.of: scale for scale in self.meta.scales}

    @cached_property
    def catalog(self) -> Catalog:
        """The public part of the catalog.

        Raises:
            ReleaseError: it does not read as one.
        """
        try:
            return catalog_from_json(json.dumps(self.meta.catalog))
        except CatalogError as error:
            raise ReleaseError(f"{self.path} holds no catalog: {error}", hint="ask its curator") from None

    @property
    def name(self) -> str:
        """The catalog's name, which qualifies tables when several releases are open."""
        return self.catalog.name

    def declares(self, view: str) -> bool:
        """Whether the catalog names a view; sets of axes that designs add to it are named in brackets."""
        return not view.startswith("(")

    def tree(self, axis: int) -> Tree:
        """The look-up tree of one axis."""
        if axis not in self._trees:
            columns = self._columns(
                "SELECT lo, hi, parent, level FROM node WHERE axis = ? ORDER BY id", [axis]
            )
            self._trees[axis] = Tree(**{k: v.astype(np.int64) for k, v in columns.items()})
        return self._trees[axis]

    def atoms(self, axis: int) -> dict[str, Any]:
        """The table of one axis as numpy arrays by column, masked where a column is NULL."""
        if axis not in self._atoms:
            self._atoms[axis] = self._columns(f"SELECT * FROM axis_{axis} ORDER BY atom", [])
        return self._atoms[axis]

    def model(self, k: int) -> Piece:
        """What `variance_<k>` holds: the variance model of an axis with its split, or that of a view's cells."""
        if k not in self._models:
            columns = self._columns(f"SELECT * FROM variance_{k} ORDER BY rowid", [])
            self._models[k] = piece(self.meta.models[k], self._leaves.get(k, 0), columns)
        return self._models[k]

    def split(self, k: int) -> AxisSplit:
        """The variance model of an axis, by its number in `AxisMeta.model`."""
        return cast(AxisSplit, self.model(k))

    @cached_property
    def _leaves(self) -> dict[int, int]:
        """Number of leaves that each model of one axis describes."""
        return {axis.model: axis.leaves for axis in self.axes}

    def reading(self, statistic: int) -> Reading:
        """How a statistic answers; its variances are in squared stored units (before the 2^-20)."""
        entry = self.statistics[statistic]
        if (statistic, statistic) in self.together:
            return self.together[statistic, statistic]
        if self.estimate(statistic) == "nonnegative" and entry.nonnegative_model is not None:
            return reading(StackReading.name, [self.model(entry.nonnegative_model)], {})
        return reading(entry.reading, [self.model(k) for k in entry.models], dict(entry.components))

    def shared(self, left: int, right: int) -> Shared | None:
        """How two statistics err together, the masks of the lower one first; None where independently."""
        if left == right:
            return self.reading(left)
        low, high = min(left, right), max(left, right)
        one, two = self.statistics[low], self.statistics[high]
        if (low, high) in self.together or one.view != two.view or one.reading not in SHARED:
            return self.together.get((low, high))
        return SHARED[one.reading](self.reading(low), self.reading(high))

    def across(self, left: int, right: int) -> Shared | None:
        """How a statistic of one view errs with one of another view; None where independently."""
        one, two = self.statistics[left], self.statistics[right]
        alike = (one.of, one.measure, one.reading) == (two.of, two.measure, two.reading)
        biased = "nonnegative" in (self.estimate(left), self.estimate(right))
        if self.together or not alike or biased or one.reading not in FAMILIES:
            return None
        pairs = tuple((i, two.axes.index(axis)) for i, axis in enumerate(one.axes) if axis in two.axes)
        return FAMILIES[one.reading](self.reading(left), self.reading(right), pairs)

    def keep_trees(self, trees: Mapping[int, Tree]) -> None:
        """Take look-up trees as known, by axis."""
        self._trees.update(trees)

    def estimate(self, statistic: int) -> str:
        """The column of a statistic's node combinations that answers are taken from."""
        return "nonnegative" if self.nonnegative and self.statistics[statistic].nonnegative else "estimate"

    def kept(self, question: Hashable, make: Callable[[], T]) -> T:
        """What a question of this release gave when it was asked first; the least asked of KEPT is forgotten."""
        with self._lock:
            if question in self._kept:
                self._kept.move_to_end(question)
                return cast(T, self._kept[question])
        found = make()
        with self._lock:
            self._kept[question] = found
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return found

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _columns(self, query: str, values: list[Any]) -> dict[str, Any]:
        return dict(self.connection.cursor().execute(query, values).fetchnumpy())


def open_release(
    path: str | Path, *, insecure: bool = False, nonnegative: bool | None = None, as_of: AsOf | None = None
) -> Release:
    """Open a release: a file, or a state of a stream directory.

    Args:
        path: the file or the directory. An open stream stays as it was while batches are appended.
        insecure: also open releases that were drawn with test entropy.
        nonnegative: answer from the non-negative estimates; standard errors are theirs where the release has a model
            of them (one axis of a local release), else those of the unbiased ones.
        as_of: for streams, the newest batch wanted, by number or label; None takes the newest there is.

    Returns:
        The open release.

    Raises:
        ReleaseError: no such file, not a release, damaged, of another format, or drawn with test entropy.
    """
    file = release_file(path, as_of)
    if not file.is_file():
        raise ReleaseError(f"there is no release at {path}", hint="run `dpsql publish` or check the path")
    try:
        connection = duckdb.connect(str(file), read_only=True, config=LOCKDOWN)
        rows = connection.execute("SELECT key, value FROM meta").fetchall()
        entries = {key: json.loads(value) for key, value in rows}
    except (duckdb.Error, ValueError, UnicodeDecodeError) as error:
        raise ReleaseError(
            f"{path} is not a dpsql release, or it is damaged ({type(error).__name__})",
            hint="ask its curator for a fresh copy",
        ) from error
    return Release(file, connection, _checked(path, entries, insecure), nonnegative)


def release_file(path: str | Path, as_of: AsOf | None = None) -> Path:
    """The file that answers for a path: itself, or the state that a stream directory names.

    Raises:
        ReleaseError: a stream without such a state, or `as_of` for a release that is no stream.
    """
    file = Path(path)
    if file.is_dir():
        return state_file(file, as_of)
    if as_of is not None and file.exists():
        raise ReleaseError(f"{path} is no stream, it has no batches", hint="leave `as_of` out")
    return file


def _checked(path: str | Path, entries: dict[str, Any], insecure: bool) -> Meta:
    """The `meta` of a release of this format."""
    if entries.get("format") != FORMAT:
        raise ReleaseError(
            f"{path} has format {entries.get('format')} and this dpsql reads {FORMAT}",
            hint="publish with this version",
        )
    try:
        meta = meta_from_json(entries)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        missing = "lacks" if first["type"] == "missing" else "cannot be read at"
        raise ReleaseError(
            f"{path} {missing} {place} in its meta table", hint="it is not a dpsql release"
        ) from None
    if meta.insecure_entropy and not insecure:
        raise ReleaseError(
            f"{path} was drawn with test entropy and protects nobody",
            hint="publish it again, or pass insecure=True in a test",
        )
    return meta
