"""Open a release: read-only, locked down, checked before the first answer.

The connection can reach nothing but the file: no external access, no extensions, no Python variables,
no temporary files, one thread (faster here than two), and its configuration cannot be changed back.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import duckdb
import numpy as np

from dpsql.catalog import Catalog, catalog_from_json
from dpsql.errors import CatalogError, InterfaceError, InternalError, MachineFault, ReleaseError
from dpsql.matrices.channel import StackReading
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.max_entropy import EntropyReading, PairTables
from dpsql.matrices.model import UNKNOWN, Reading, Shared
from dpsql.matrices.reading import BETWEEN, FAMILIES, MEASURED, SHARED, Piece, piece, reading, stored_as_pairs
from dpsql.release import structure
from dpsql.release.format import DOMAIN, OTHER, AxisMeta, Meta, ScaleMeta, StatisticMeta
from dpsql.release.promises import raised_min_people, stated_min_people
from dpsql.release.request import check, executed
from dpsql.release.signature import AsOf, Signer, check_signature, held, named_batch, signer_of, state_file
from dpsql.row_expressions import identifier
from dpsql.tree import FloatArray, Tree, stored_tree

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

READING = LOCKDOWN | {"allowed_configs": ["memory_limit"]}
"""Of a release's own connection, which runs statements of our own making alone."""
READS = 1000
"""Statements between two drains: each leaves some 3 KB in DuckDB's list of buffers that may be evicted, up to 25 MB."""

MOST_NODES, MOST_ATOMS, MOST_LINES, MOST_TEXT = 1 << 22, 1 << 21, 1 << 25, 1 << 28
"""Rows of an axis's tree, of its table and of a variance table, and bytes of text in one table."""
MOST_NUMBERS = 1 << 26
"""Numbers of one statistic that are read at once: half a gigabyte."""
DAMAGE = "Corrupt database file"
"""What DuckDB says of a block whose checksum does not match, under several of its error classes."""

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
        min_people: fewest people of whom a number is shown (`executor.small_numbers`); 0 of a release that no interface
            opened, such as that of a forecast.
        nonnegative: whether answers are taken from the non-negative (biased) estimates where they are stored; None
            takes the unbiased ones, and leaves it to whoever answers a whole statement to turn to the others.
        signer: whose signature it carries; None where it carries none.
        pair_readings: of a release in memory: two statistics -> how both err together; of a file nothing, since its
            statistics err independently.
        margins: copies of its small margins, made when a shape of statements comes again.
    """

    path: Path
    connection: duckdb.DuckDBPyConnection
    meta: Meta
    nonnegative: bool | None = None
    signer: Signer | None = None
    pair_readings: Mapping[tuple[int, int], Reading] = field(default_factory=dict)
    _trees: dict[int, Tree] = field(default_factory=dict)
    _models: dict[int, Piece] = field(default_factory=dict)
    _readings: dict[tuple[int, str], Reading] = field(default_factory=dict)
    _atoms: dict[int, dict[str, Any]] = field(default_factory=dict)
    _kept: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, repr=False)
    margins: structure.Margins = field(default_factory=structure.Margins, repr=False)
    min_people: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _readers: int = field(default=0, repr=False)
    _reads: int = field(default=0, repr=False)

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
            catalog = catalog_from_json(json.dumps(self.meta.catalog))
            _ = catalog.star  # its tables refer to each other
        except CatalogError as error:
            raise ReleaseError(f"{self.path} contains no catalog: {error}", hint="ask its curator") from None
        return catalog

    @property
    def name(self) -> str:
        """The catalog's name, which qualifies tables when several releases are open."""
        return self.catalog.name

    def declares(self, view: str) -> bool:
        """True if the catalog names a view; sets of axes that designs add to it are named in brackets."""
        return not view.startswith("(")

    def tree(self, axis: int) -> Tree:
        """The look-up tree of one axis."""
        if axis not in self._trees:
            columns = self._columns(
                "node", "id, lo, hi, parent, level", "WHERE axis = ? ORDER BY id", [axis], MOST_NODES
            )
            shape = [np.asarray(columns[name], np.int64) for name in ("lo", "hi", "parent", "level")]
            try:
                tree = stored_tree(*shape)
            except InterfaceError as error:
                raise structure.refused(
                    self.path, f"the look-up tree of an axis is invalid: {error}"
                ) from None
            if tree.n != self.axes[axis].leaves or np.any(columns["id"] != np.arange(tree.size)):
                raise structure.refused(self.path, "the look-up tree of an axis belongs to another axis")
            self._trees[axis] = tree
        return self._trees[axis]

    def atoms(self, axis: int) -> dict[str, Any]:
        """The table of one axis as numpy arrays by column, masked where a column is NULL."""
        if axis not in self._atoms:
            columns = self._columns(f"axis_{axis}", "*", "ORDER BY atom", [], MOST_ATOMS)
            fixed = {name: columns[name] for name in structure.AXIS}
            leaves = self.axes[axis].leaves
            if (
                not len(fixed["leaf"])
                or _incomplete(fixed)
                or np.any((fixed["leaf"] < 0) | (fixed["leaf"] >= leaves) | (fixed["weight"] < 0))
                or np.any((fixed["kind"] < DOMAIN) | (fixed["kind"] > OTHER))
            ):
                raise structure.refused(self.path, f"axis_{axis} has atoms of no leaf, kind or weight")
            self._atoms[axis] = columns
        return self._atoms[axis]

    def atoms_as_text(self, axis: int) -> dict[str, Any]:
        """The same with the public columns as text, which holds values of every type exactly; None where NULL."""
        self.atoms(axis)
        names = [identifier(column.name) for column in self.axes[axis].columns]
        picked = ", ".join([*structure.AXIS, *(f"CAST({name} AS VARCHAR) AS {name}" for name in names)])
        columns = self._columns(f"axis_{axis}", picked, "ORDER BY atom", [], MOST_ATOMS)
        for name in columns.keys() - structure.AXIS.keys():
            text = np.array(np.ma.getdata(columns[name]), dtype=object)
            text[np.ma.getmaskarray(columns[name])] = None
            columns[name] = text
        return columns

    def whole(self, table: str) -> dict[str, Any]:
        """A table's columns in stored order, once it is known to be no larger than a release makes it.

        Args:
            table: one that `meta` implies.

        Raises:
            ReleaseError: it is larger, or it is damaged.
            QueryTimeout: it took too long.
        """
        return self._columns(table, "*", "ORDER BY rowid", [], MOST_NUMBERS)

    def model(self, k: int) -> Piece:
        """Variance model in `variance_<k>`: that of an axis with its split, or that of a view's cells."""
        if k not in self._models:
            columns = self._columns(f"variance_{k}", "*", "ORDER BY rowid", [], MOST_LINES)
            self._models[k] = self._piece(k, columns)
        return self._models[k]

    def _piece(self, k: int, columns: dict[str, Any]) -> Piece:
        """The model that lines stand for, if it can be written again."""
        fault = structure.refused(self.path, f"variance_{k} has no model of its kind")
        if _incomplete(columns) or not all(len(values) for values in columns.values()):
            raise fault
        try:
            model = piece(self.meta.models[k], self._leaves.get(k, 0), columns)
            model.columns()  # writes all of it again
        except (
            InternalError,
            InterfaceError,
            ArithmeticError,
            LookupError,
            ValueError,
            MemoryError,
        ) as error:
            raise fault from error
        return model

    def measured(self, k: int) -> set[tuple[int, int]] | None:
        """The half-open intervals of leaves that a model's strategy measured.

        None where its rows are no intervals, and of a release in memory, which has no models.
        """
        if self.pair_readings:
            return None
        kind, model = self.meta.models[k], self.model(k)
        return MEASURED[kind](self._leaves[k], model.columns()) if kind in MEASURED else None

    def split(self, k: int) -> AxisSplit:
        """The variance model of an axis, by its number in `AxisMeta.model`."""
        return cast(AxisSplit, self.model(k))

    @cached_property
    def _leaves(self) -> dict[int, int]:
        """Number of leaves that each model of one axis describes."""
        return {axis.model: axis.leaves for axis in self.axes}

    def reading(self, statistic: int) -> Reading:
        """Reading of a statistic; its variances are in squared stored units (before the 2^-20)."""
        key = statistic, self.estimate(statistic)
        if key not in self._readings:
            self._readings[key] = self._reading(statistic)
        return self._readings[key]

    def _reading(self, statistic: int) -> Reading:
        """The same, of what is stored."""
        statistic_meta = self.statistics[statistic]
        if (statistic, statistic) in self.pair_readings:
            return self.pair_readings[statistic, statistic]
        if self.estimate(statistic) == "nonnegative" and statistic_meta.nonnegative_model is not None:
            return reading(StackReading.name, [self.model(statistic_meta.nonnegative_model)], {(0,): 1.0})
        pieces = [self.model(k) for k in statistic_meta.models]
        sizes = [piece.model.n for piece in pieces if isinstance(piece, AxisSplit)]
        if sizes != [self.axes[axis].leaves for axis in statistic_meta.axes] and (sizes or not pieces):
            raise structure.refused(self.path, f"statistic {statistic} has variance models of other axes")
        try:
            stored = reading(statistic_meta.reading, pieces, dict(statistic_meta.components))
        except (InternalError, LookupError, ValueError) as error:
            raise structure.refused(
                self.path, f"statistic {statistic} is not read by its variance models"
            ) from error
        if not stored_as_pairs(statistic_meta.reading):
            return stored
        return replace(cast(EntropyReading, stored), pairs=self._pairs(statistic))

    def fitted(self, statistic: int) -> EntropyReading | None:
        """The reading of a statistic whose boxes over more than two axes are fitted; None where all are sums."""
        of_pairs = stored_as_pairs(self.statistics[statistic].reading) and not self.pair_readings
        return cast(EntropyReading, self.reading(statistic)) if of_pairs else None

    def _pairs(self, statistic: int) -> PairTables:
        """Pair tables of a statistic; redrawn noise follows from the release's id."""
        tables: dict[tuple[int, int], FloatArray] = {}

        def table(i: int, j: int) -> FloatArray:
            if (i, j) not in tables:
                tables[i, j] = self._pair_table(statistic, i, j)
            return tables[i, j]

        return PairTables(table, (*self.meta.release_id.encode(), statistic), check)

    def _pair_table(self, statistic: int, i: int, j: int) -> FloatArray:
        """Leaf counts of a pair of positions: the non-negative estimate, or the unbiased one where there is none."""
        meta = self.statistics[statistic]
        trees, shape = (
            [self.tree(meta.axes[k]) for k in (i, j)],
            [self.axes[meta.axes[k]].leaves for k in (i, j)],
        )
        column = "nonnegative" if meta.nonnegative else "estimate"
        where = " AND ".join(f"n{k + 1} = 0" for k in range(len(meta.axes)) if k not in (i, j))
        picked = f"n{i + 1} AS a, n{j + 1} AS b, {column} AS value"
        columns = self._columns(f"node_combination_{statistic}", picked, f"WHERE {where}", [], MOST_NUMBERS)
        if _incomplete(columns):
            raise structure.refused(self.path, f"the pair tables of the view {meta.view} have gaps")
        leaf_of = [np.full(tree.size, -1, np.int64) for tree in trees]
        for leaf, tree in zip(leaf_of, trees, strict=True):
            leaf[tree.leaves] = np.arange(tree.n)
        nodes = [np.asarray(columns[name], np.int64) for name in "ab"]
        inside = [(node >= 0) & (node < tree.size) for node, tree in zip(nodes, trees, strict=True)]
        in_tree = inside[0] & inside[1]
        a, b = (leaf[node[in_tree]] for leaf, node in zip(leaf_of, nodes, strict=True))
        leaves, counts = (a >= 0) & (b >= 0), np.full(shape, np.nan)
        counts[a[leaves], b[leaves]] = meta.in_units(columns["value"])[in_tree][leaves]
        if np.count_nonzero(leaves) != counts.size or np.isnan(counts).any():
            raise structure.refused(
                self.path, f"the view {meta.view} lacks node combinations, or has some twice"
            )
        return counts

    def shared(self, left: int, right: int) -> Reading | Shared | None:
        """Covariance of two statistics, the masks of the lower one first; None where independent."""
        if left == right:
            return self.reading(left)
        low, high = min(left, right), max(left, right)
        low_meta, high_meta = self.statistics[low], self.statistics[high]
        if self.pair_readings or low_meta.view != high_meta.view:
            return self.pair_readings.get((low, high))
        if low_meta.reading in SHARED:
            return SHARED[low_meta.reading](self.reading(low), self.reading(high))
        return self._family_covariance(low, high)

    def across(self, left: int, right: int) -> Reading | Shared | None:
        """Covariance of a statistic of one view with one of another view; None where independent."""
        left_meta, right_meta = self.statistics[left], self.statistics[right]
        together = None if self.pair_readings else self._family_covariance(left, right)
        if together is not None:
            return together
        alike = (left_meta.of, left_meta.measure, left_meta.reading) == (
            right_meta.of,
            right_meta.measure,
            right_meta.reading,
        )
        biased = "nonnegative" in (self.estimate(left), self.estimate(right))
        if self.pair_readings or not alike or biased or left_meta.reading not in FAMILIES:
            return None
        pairs = tuple(
            (i, right_meta.axes.index(axis))
            for i, axis in enumerate(left_meta.axes)
            if axis in right_meta.axes
        )
        return FAMILIES[left_meta.reading](self.reading(left), self.reading(right), pairs)

    def _family_covariance(self, left: int, right: int) -> Reading | Shared | None:
        """Covariance of two families' statistics; None where independent."""
        parts = [
            covariance.components
            for covariance in self.meta.covariances
            if (left in covariance.left and right in covariance.right)
            or (right in covariance.left and left in covariance.right)
        ]
        if not parts:
            return None
        metas = self.statistics[left], self.statistics[right]
        make = BETWEEN.get(metas[0].reading)
        biased = "nonnegative" in (self.estimate(left), self.estimate(right))
        if make is None or biased or metas[0].reading != metas[1].reading:
            return UNKNOWN
        return make((self.reading(left), self.reading(right)), (metas[0].axes, metas[1].axes), dict(parts[0]))

    def keep_trees(self, trees: Mapping[int, Tree]) -> None:
        """Take look-up trees as known, by axis."""
        self._trees.update(trees)

    def estimate(self, statistic: int) -> str:
        """The column of a statistic's node combinations that answers are taken from."""
        return "nonnegative" if self.nonnegative and self.statistics[statistic].nonnegative else "estimate"

    def kept(self, question: Hashable, make: Callable[[], T]) -> T:
        """Cached result of a question of this release; the least used of KEPT is dropped."""
        with self._lock:
            if question in self._kept:
                self._kept.move_to_end(question)
                return cast(T, self._kept[question])
        value = make()
        with self._lock:
            self._kept[question] = value
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return value

    def close(self) -> None:
        self.connection.close()

    def read(
        self,
        sql: str | duckdb.Statement,
        values: Sequence[Any],
        fetch: Callable[[duckdb.DuckDBPyConnection], T],
    ) -> T:
        """Run a statement of our own making for the current request, and fetch from it.

        Args:
            sql: DuckDB text.
            values: for its placeholders.
            fetch: what is wanted of its result.

        Raises:
            QueryTimeout: it was stopped.
            ReleaseError: a block of the file fails its checksum, or is not there; or there is no memory for it.
            duckdb.Error: anything else; callers know what it means to them.
        """
        try:
            with self._one_of_the_readers():
                return executed(self.connection.cursor(), sql, values, fetch)
        except duckdb.OutOfMemoryException as error:
            raise ReleaseError(
                f"reading {self.path} takes more memory than a question may", hint="ask for less"
            ) from error
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) or DAMAGE in str(error):
                raise structure.damaged(self.path) from error
            raise

    @contextmanager
    def _one_of_the_readers(self) -> Iterator[None]:
        """While a statement runs; the last of many to end drains."""
        with self._lock:
            self._readers += 1
            self._reads += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1
                if self._readers == 0 and self._reads >= READS:
                    self._reads = 0
                    self._drain()

    def _drain(self) -> None:
        """Have DuckDB go through its list of buffers, as it does when memory is short, and forget those that are gone.

        Nobody reads meanwhile: the lock is held, so no statement meets the small limit.
        """
        with suppress(duckdb.Error):  # what is in use stays, or the connection is closed
            self.connection.execute("SET memory_limit = '1KB'")
        with suppress(duckdb.Error):
            self.connection.execute(f"SET memory_limit = '{LOCKDOWN['memory_limit']}'")

    def _columns(
        self, table: str, picked: str, clauses: str, values: list[Any], most_rows: int
    ) -> dict[str, Any]:
        """Columns of a table as arrays, once it is known to be no larger than a release makes it."""
        texts = [f'strlen("{name}")' for name in self._texts(table)]
        size = f"SELECT count(*), coalesce(sum({' + '.join(f'coalesce({text}, 0)' for text in texts) or 0}), 0) FROM"
        try:
            ((number, text),) = self.read(f"{size} {table}", (), lambda cursor: cursor.fetchall())
            if number > most_rows or text > MOST_TEXT:
                raise structure.refused(self.path, f"{table} is larger than a release makes it")
            sql = f"SELECT {picked} FROM {table} {clauses}"
            return dict(self.read(sql, values, lambda cursor: cursor.fetchnumpy()))
        except duckdb.Error as error:
            raise structure.damaged(self.path) from error

    def _texts(self, table: str) -> list[str]:
        """Columns of text in an axis's table or a list of keys, quoted for SQL."""
        number = table.removeprefix("keys_")
        if number != table:
            return ["key"] if self.meta.keys[int(number)].kind == "VARCHAR" else []
        axis = table.removeprefix("axis_")
        columns = self.axes[int(axis)].columns if axis != table else ()
        return [column.name.replace('"', '""') for column in columns if column.type == "VARCHAR"]


def open_release(
    path: str | Path,
    *,
    insecure: bool = False,
    nonnegative: bool | None = None,
    as_of: AsOf | None = None,
    signers: Collection[str] | None = None,
) -> Release:
    """Open a release: a file, or a state of a stream directory.

    Args:
        path: the file or the directory. An open stream stays as it was while batches are appended.
        insecure: also open releases that were drawn with test entropy.
        nonnegative: answer from the non-negative estimates; standard errors are theirs where the release has a model
            of them (one axis of a local release), else those of the unbiased ones.
        as_of: for streams, the newest batch wanted, by number or label; None takes the newest there is.
        signers: public keys of which one must have signed the file; its bytes are verified before DuckDB reads them.
            None opens what is signed by nobody too, and verifies nothing.

    Returns:
        The open release.

    Raises:
        ReleaseError: no such file, not a release, damaged, of another format, drawn with test entropy, or not signed
            as required.
        MachineFault: there is no memory for it.
    """
    file = release_file(path, as_of)
    if not file.is_file() and re.match(r"\s*(select|with|from)\s", str(path), re.IGNORECASE):
        raise ReleaseError("the release comes first and the SQL second", hint="the two look swapped")
    if not file.is_file():
        raise ReleaseError(f"there is no release at {path}", hint="run `dpsql publish` or check the path")
    structure.check_alone(file)
    with held(file) as opened:
        signer = signer_of(opened) if signers is None else check_signature(opened, signers)
        try:
            connection = duckdb.connect(str(file.absolute()), read_only=True, config=READING)
            try:
                meta = _checked(connection, file, Path(path), insecure)
                opened.check_opened()
            except BaseException:
                connection.close()
                raise
        except duckdb.OutOfMemoryException as error:
            raise MachineFault(f"{path} was not opened: no memory", hint="close other programs") from error
        except (duckdb.Error, UnicodeDecodeError) as error:
            raise structure.damaged(Path(path)) from error
    release = Release(file, connection, meta, nonnegative, signer)
    try:
        release.min_people = max(stated_min_people(meta), raised_min_people())
    except BaseException:
        connection.close()
        raise
    return release


def filled_release(fill: Callable[[duckdb.DuckDBPyConnection], None], name: str) -> Release:
    """A release in memory, of tables that this process makes and that need no proof.

    Args:
        fill: makes the tables of a release in an empty database.
        name: stands for its file in messages.
    """
    unlimited = {key: value for key, value in READING.items() if key != "memory_limit"}
    connection = duckdb.connect(":memory:", config=unlimited)
    try:
        fill(connection)
        return Release(Path(name), connection, structure.read_meta(connection, Path(name)), None, None)
    except BaseException:
        connection.close()
        raise


def release_file(path: str | Path, as_of: AsOf | None = None) -> Path:
    """The file that answers for a path: itself, or the state that a stream directory names.

    Raises:
        ReleaseError: a stream without such a state, or `as_of` for a release that is no stream.
    """
    file = Path(path)
    if file.is_dir():
        return state_file(file, as_of)
    if as_of is not None and file.exists():
        raise ReleaseError(f"{path} is not a stream; it has no batches", hint="leave `as_of` out")
    return file


def _checked(connection: duckdb.DuckDBPyConnection, file: Path, path: Path, insecure: bool) -> Meta:
    """The `meta` of a release of this format, whose tables are those that it implies."""
    stored = structure.check_objects(connection, path)
    meta = structure.read_meta(connection, path)
    structure.check_tables(stored, path, meta)
    structure.check_labels(connection, path, len(meta.axes))
    batch = None if meta.stream is None else named_batch(file)
    if batch is not None and meta.stream is not None and batch != meta.stream.as_of_batch:
        raise structure.refused(
            path, f"the stream names it as batch {batch}, and it is batch {meta.stream.as_of_batch}"
        )
    if meta.insecure_entropy and not insecure:
        raise ReleaseError(
            f"{path} was drawn with test entropy and protects nobody",
            hint="publish it again, or pass insecure=True in a test",
        )
    return meta


def _incomplete(columns: Mapping[str, Any]) -> bool:
    """True if a number is NULL, NaN or infinite. DuckDB masks NULL; without one nobody needs `numpy.ma`."""
    return any(
        np.any(getattr(values, "mask", False)) or not np.all(np.isfinite(np.asarray(values)))
        for values in columns.values()
    )
