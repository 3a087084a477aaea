"""Open a release: read-only, locked down, checked before the first answer.

The connection can reach nothing but the file: no external access, no extensions, no Python variables,
no temporary files, one thread (faster here than two), and its configuration cannot be changed back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from dpsql.errors import ReleaseError
from dpsql.release.format import FORMAT, AxisMeta, ScaleMeta, StatisticMeta
from dpsql.release.stream import AsOf, state_file
from dpsql.tree import Tree
from dpsql.variance import AxisVariance, from_columns
from dpsql.variance.kronecker import AxisSplit, KroneckerVariance
from dpsql.variance.plane import PlaneVariance
from dpsql.variance.view import JointVariance, ViewVariance, joint_from_columns

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

REQUIRED = ("format", "release_id", "catalog", "privacy", "axes", "statistics")


@dataclass
class Release:
    """An open release. Cursors of `connection` may be used from several threads, one each.

    Args:
        path: the file.
        connection: read-only DuckDB connection to it.
        meta: the decoded `meta` table.
        nonnegative: whether answers are taken from the non-negative (biased) estimates where they are stored.
    """

    path: Path
    connection: duckdb.DuckDBPyConnection
    meta: dict[str, Any]
    nonnegative: bool = False
    _trees: dict[int, Tree] = field(default_factory=dict)
    _splits: dict[int, AxisSplit] = field(default_factory=dict)
    _atoms: dict[int, dict[str, Any]] = field(default_factory=dict)
    _joint: dict[int, PlaneVariance] = field(default_factory=dict)

    @cached_property
    def axes(self) -> tuple[AxisMeta, ...]:
        """The release's axes; an axis id is a position here."""
        return tuple(AxisMeta.from_json(axis) for axis in self.meta["axes"])

    @cached_property
    def statistics(self) -> tuple[StatisticMeta, ...]:
        """The release's statistics; a statistic's id is its position here."""
        return tuple(StatisticMeta.from_json(statistic) for statistic in self.meta["statistics"])

    @cached_property
    def scales(self) -> dict[str, ScaleMeta]:
        """The scale of each table with `max_ids: auto`, by table."""
        found = [ScaleMeta.from_json(scale) for scale in self.meta.get("scales", ())]
        return {scale.of: scale for scale in found}

    @property
    def name(self) -> str:
        """The catalog's name, which qualifies tables when several releases are open."""
        return str(self.meta["catalog"]["name"])

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

    def model(self, axis: int) -> AxisSplit:
        """The variance model of one axis."""
        k = self.axes[axis].model
        if k not in self._splits:
            model: AxisVariance = from_columns(self.meta["models"][k], self.axes[axis].leaves, self._model(k))
            self._splits[k] = AxisSplit(model)
        return self._splits[k]

    def joint_model(self, k: int) -> PlaneVariance:
        """The model of a view's cells together, at unit noise."""
        if k not in self._joint:
            self._joint[k] = joint_from_columns(self.meta["models"][k], self._model(k))
        return self._joint[k]

    def _model(self, k: int) -> dict[str, Any]:
        return self._columns(f"SELECT * FROM variance_{k} ORDER BY rowid", [])

    def variance(self, statistic: int) -> ViewVariance:
        """The variance model of one statistic, in squared stored units (before the 2^-20)."""
        entry = self.statistics[statistic]
        own = self.nonnegative_split(statistic) if self.estimate(statistic) == "nonnegative" else None
        if own is not None:
            return KroneckerVariance((own,), {(): own.total, (0,): 1.0})
        if entry.joint is not None:
            return JointVariance(self.joint_model(entry.joint), entry.components[0][1])
        return KroneckerVariance(tuple(self.model(axis) for axis in entry.axes), dict(entry.components))

    def nonnegative_split(self, statistic: int) -> AxisSplit | None:
        """The model of a statistic's non-negative estimate, where it has one of its own."""
        entry = self.statistics[statistic]
        k = entry.nonnegative_model
        if k is None:
            return None
        if k not in self._splits:
            leaves = self.axes[entry.axes[0]].leaves
            self._splits[k] = AxisSplit(from_columns(self.meta["models"][k], leaves, self._model(k)))
        return self._splits[k]

    def estimate(self, statistic: int) -> str:
        """The column of a statistic's node combinations that answers are taken from."""
        return "nonnegative" if self.nonnegative and self.statistics[statistic].nonnegative else "estimate"

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _columns(self, query: str, values: list[Any]) -> dict[str, Any]:
        return dict(self.connection.cursor().execute(query, values).fetchnumpy())


def open_release(
    path: str | Path, *, insecure: bool = False, nonnegative: bool = False, as_of: AsOf | None = None
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
        meta = {key: json.loads(value) for key, value in rows}
    except (duckdb.Error, ValueError, UnicodeDecodeError) as error:
        raise ReleaseError(
            f"{path} is not a dpsql release, or it is damaged ({type(error).__name__})",
            hint="ask its curator for a fresh copy",
        ) from error
    _check(path, meta, insecure)
    return Release(file, connection, meta, nonnegative)


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


def _check(path: str | Path, meta: dict[str, Any], insecure: bool) -> None:
    missing = [key for key in REQUIRED if key not in meta]
    if missing:
        raise ReleaseError(f"{path} lacks {missing[0]} in its meta table", hint="it is not a dpsql release")
    if meta["format"] != FORMAT:
        raise ReleaseError(
            f"{path} has format {meta['format']} and this dpsql reads {FORMAT}",
            hint="publish with this version",
        )
    if meta.get("insecure_entropy") and not insecure:
        raise ReleaseError(
            f"{path} was drawn with test entropy and protects nobody",
            hint="publish it again, or pass insecure=True in a test",
        )
