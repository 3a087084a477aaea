"""The private side of a stream release: one file, readable by its owner only, that decides what is published.

It holds exact running sums of nodes that are still open, noise that later batches read again, how many batches each
person has been in, keyed digests of the batches, and the outbox: noised values that may not have reached the public
directory yet. SQLite rather than DuckDB, because one small transaction a batch is all there is, its journal is synced
before the commit returns, and a second opener in the same process sees the file as it is. Its mode is 0600, its
directory's 0700; a file open to others is refused.

| table       | one row per                       | holds                                                    |
|-------------|-----------------------------------|-----------------------------------------------------------|
| setting     | key                               | format, release id, strategy, types, HMAC secret         |
| batch       | batch                             | keyed digest; hash of its segment once that is public    |
| prefix_sum  | position still needed, statistic  | exact sums of the batches before it                      |
| noise       | node still to be read, statistic  | its draw; of noise drawn ahead, all batches to come      |
| outbox      | emission of an unpublished batch  | noised values                                            |
| contributor | person (keyed)                    | batches so far                                           |
| left_out    | batch, rule                       | rows that the rule left out, for the curator             |

**Privacy**: raw sums live here. Never copy this file into a release, and never restore an old copy: appending refuses
when the public side is ahead of it, because drawing a batch's noise twice would show the exact difference.
Noise that was drawn ahead opens every batch to come: such a state is in no backup, and what is deleted is overwritten.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from dpsql.errors import BatchConflict, BatchOrderError, IntegrityError, OperationalError, PrivacyError
from dpsql.faults import UNCHARGED, machine
from dpsql.ledger.files import PRIVATE_DIRECTORY, beside, file_hash, made_aside, write_private
from dpsql.mechanisms.distribution import published
from dpsql.streams.public import NoisyNode
from dpsql.tree import BoolArray, IntArray

FORMAT = "2"
FORGOTTEN = 1 << 62
"""The count of somebody who was in as many batches as there may ever be."""
TABLES = """
CREATE TABLE setting (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE batch (number INTEGER PRIMARY KEY, digest BLOB NOT NULL, segment TEXT);
CREATE TABLE prefix_sum (position INTEGER, statistic INTEGER, sums BLOB NOT NULL, PRIMARY KEY (position, statistic));
CREATE TABLE noise (node INTEGER, statistic INTEGER, until INTEGER NOT NULL, draw BLOB NOT NULL,
                    PRIMARY KEY (node, statistic));
CREATE TABLE outbox (id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, statistic INTEGER NOT NULL,
                     level INTEGER NOT NULL, lo INTEGER NOT NULL, hi INTEGER NOT NULL, noised BLOB NOT NULL);
CREATE TABLE contributor (person BLOB PRIMARY KEY, batches INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE left_out (batch INTEGER, rule TEXT, rows INTEGER NOT NULL, PRIMARY KEY (batch, rule));
"""


class StreamState:
    """An open private state. Get one from `open_state`; close it when done."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        """Take over a connection in autocommit mode that syncs every commit."""
        self.path = path
        self._database = database

    def close(self) -> None:
        self._database.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing: what happens inside is durable once the block ends, or has never happened."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._database.in_transaction:  # a full disk has rolled it back already
                self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    def setting(self, key: str) -> bytes:
        """One setting.

        Raises:
            IntegrityError: the file lacks it.
        """
        row = self._database.execute("SELECT value FROM setting WHERE key = ?", [key]).fetchone()
        if row is None:
            raise IntegrityError(
                f"{self.path} is not a complete stream state", hint="restore it from a backup"
            )
        return bytes(row[0])

    def keyed(self, content: bytes) -> bytes:
        """HMAC of some bytes under this state's secret: small batches are guessable from a plain hash."""
        return hmac.digest(self.setting("secret"), content, hashlib.sha256)

    def segments(self, first: int = 0) -> list[str | None]:
        """The segment's hash of each decided batch from number `first` on; None where it is not public yet."""
        query = "SELECT segment FROM batch WHERE number >= ? ORDER BY number"
        return [segment for (segment,) in self._database.execute(query, [first])]

    def known(self, number: int) -> bool:
        """Has this batch been decided already? Its rows are not compared: whether they differ would tell of them.

        Args:
            number: the batch, 0-based.

        Returns:
            True if it has (appending is a no-op), False if it is the next one.

        Raises:
            BatchOrderError: batches before it are missing.
        """
        expected = self.next_batch()
        if 0 <= number < expected:
            return True
        if number != expected:
            raise BatchOrderError(
                f"batch {number} cannot be appended, batch {expected} is next",
                hint="append the missing batches in order; an empty one counts as a batch",
            )
        return False

    def compare(self, number: int, content: bytes) -> None:
        """Compare rows with those that a batch was made of. For the curator only.

        Args:
            number: the batch, 0-based.
            content: what identifies the rows, for instance a hash of the file.

        Raises:
            BatchConflict: the batch was made of other rows.
        """
        row = self._database.execute("SELECT digest FROM batch WHERE number = ?", [number]).fetchone()
        if row is None or not hmac.compare_digest(bytes(row[0]), self.keyed(content)):
            raise BatchConflict(
                f"batch {number} was appended with other rows",
                hint="published batches cannot change; send corrections with a later batch",
            )

    def types(self) -> str:
        """The column types of the first batch as text, empty before it. See `StreamTypes`."""
        row = self._database.execute("SELECT value FROM setting WHERE key = 'types'").fetchone()
        return "" if row is None else bytes(row[0]).decode()

    def fix_types(self, types: str) -> None:
        """Keep the column types of the first batch for all later ones. Inside a transaction."""
        self._database.execute("INSERT INTO setting VALUES ('types', ?)", [types.encode()])

    def next_batch(self) -> int:
        """The number of the batch that comes next."""
        row = self._database.execute("SELECT coalesce(max(number) + 1, 0) FROM batch").fetchone()
        return int(row[0])

    def record(self, number: int, content: bytes, left_out: dict[str, int]) -> None:
        """Note a batch as decided, and what the rules left out of it. Inside a transaction."""
        self._database.execute("INSERT INTO batch VALUES (?, ?, NULL)", [number, self.keyed(content)])
        self._database.executemany(
            "INSERT INTO left_out VALUES (?, ?, ?)",
            [(number, rule, rows) for rule, rows in sorted(left_out.items())],
        )

    def sums(self, position: int, statistic: int, cells: int) -> IntArray:
        """Exact sums of the batches before a position; zeros at 0.

        Raises:
            IntegrityError: the position is no longer kept.
        """
        if position == 0:
            return np.zeros(cells, dtype=np.int64)
        row = self._database.execute(
            "SELECT sums FROM prefix_sum WHERE position = ? AND statistic = ?", [position, statistic]
        ).fetchone()
        if row is None:
            raise IntegrityError(
                f"{self.path} lacks the sums before batch {position}",
                hint="restore the newest copy of the private state",
            )
        return np.frombuffer(row[0], dtype=np.int64)

    def keep_sums(self, position: int, statistic: int, sums: IntArray) -> None:
        """Store the exact sums of the batches before a position. Inside a transaction."""
        self._database.execute(
            "INSERT INTO prefix_sum VALUES (?, ?, ?)", [position, statistic, sums.tobytes()]
        )

    def forget_sums(self, keep: Iterable[int]) -> None:
        """Drop the sums at all positions but these. Inside a transaction."""
        stored = {int(p) for (p,) in self._database.execute("SELECT DISTINCT position FROM prefix_sum")}
        gone = [(position,) for position in stored - set(keep)]
        self._database.executemany("DELETE FROM prefix_sum WHERE position = ?", gone)

    def drawn(self, node: int, statistic: int) -> IntArray | None:
        """The draw of a noise node that is still to be read again, or None."""
        row = self._database.execute(
            "SELECT draw FROM noise WHERE node = ? AND statistic = ?", [node, statistic]
        ).fetchone()
        return None if row is None else np.frombuffer(row[0], dtype=np.int64)

    def keep_noise(self, node: int, statistic: int, until: int, draw: IntArray) -> None:
        """Keep a draw for later batches. Inside a transaction."""
        self._database.execute(
            "INSERT INTO noise VALUES (?, ?, ?, ?)", [node, statistic, until, draw.tobytes()]
        )

    def forget_noise(self, length: int) -> None:
        """Drop draws that prefixes longer than `length` do not read. Inside a transaction."""
        self._database.execute("DELETE FROM noise WHERE until <= ?", [length + 1])

    def send(self, batch: int, node: NoisyNode) -> None:
        """Put noised values into the outbox. Inside a transaction."""
        self._database.execute(
            "INSERT INTO outbox (batch, statistic, level, lo, hi, noised) VALUES (?, ?, ?, ?, ?, ?)",
            [batch, node.statistic, node.level, node.lo, node.hi, node.values.tobytes()],
        )

    def outbox(self, batch: int) -> tuple[NoisyNode, ...]:
        """The noised values of a batch that is not marked as published yet."""
        rows = self._database.execute(
            "SELECT statistic, level, lo, hi, noised FROM outbox WHERE batch = ? ORDER BY id", [batch]
        )
        return tuple(
            NoisyNode(s, level, lo, hi, published(np.frombuffer(noised, np.int64)))
            for s, level, lo, hi, noised in rows
        )

    def mark(self, batch: int, segment: str) -> None:
        """Note that a batch is public, with its segment's hash, and empty its outbox."""
        with self.transaction():
            self._database.execute("UPDATE batch SET segment = ? WHERE number = ?", [segment, batch])
            self._database.execute("DELETE FROM outbox WHERE batch = ?", [batch])

    def admitted(self, people: Sequence[str], lifetime: int) -> BoolArray:
        """People who may still be in a batch: those in fewer than `lifetime` batches so far.

        Args:
            people: privacy-unit keys as text.
            lifetime: D, batches that one person may be in over the life of the release.

        Returns:
            bool[len(people)].

        **Privacy**: an exact private counter on disk, never published; a person's admission depends on her own
        batches alone.
        """
        full = [self._batches_of(self.keyed(person.encode())) for person in people]
        return np.array([batches < lifetime for batches in full], dtype=np.bool_)

    def count_people(self, people: Iterable[str], lifetime: int) -> None:
        """Add one batch to each person's counter. Inside a transaction.

        Raises:
            PrivacyError: someone has no batch left; the caller kept rows that `admitted` had refused.
        """
        for person in sorted(set(people)):
            key = self.keyed(person.encode())
            if self._batches_of(key) >= lifetime:
                raise PrivacyError(
                    "a person over the lifetime cap was kept", hint="keep the admitted people only"
                )
            self._database.execute(
                "INSERT INTO contributor VALUES (?, 1) "
                "ON CONFLICT (person) DO UPDATE SET batches = batches + 1",
                [key],
            )

    def forget_people(self, people: Iterable[str]) -> int:
        """Forget in how many batches some people were, and admit them to none that comes. Inside a transaction.

        A mark stays, under their keyed hash: without it they would be counted anew, and could be in more batches than
        the release promises.

        Returns:
            How many of them were known.
        """
        keys = [(FORGOTTEN, self.keyed(person.encode())) for person in sorted(set(people))]
        update = "UPDATE contributor SET batches = ? WHERE person = ?"
        return sum(self._database.execute(update, key).rowcount for key in keys)

    def left_out(self) -> dict[str, int]:
        """Rows that each rule has left out so far. For the curator only."""
        rows = self._database.execute("SELECT rule, sum(rows) FROM left_out GROUP BY rule ORDER BY rule")
        return {str(rule): int(count) for rule, count in rows}

    def _batches_of(self, key: bytes) -> int:
        row = self._database.execute("SELECT batches FROM contributor WHERE person = ?", [key]).fetchone()
        return 0 if row is None else int(row[0])


def create_state(path: Path, settings: dict[str, str], secret: bytes) -> None:
    """Make the private state of a new stream release, mode 0600 in a directory of mode 0700.

    Args:
        path: must not exist.
        settings: texts that never change, for instance release_id and strategy.
        secret: 32 random bytes for digests and counters.

    Raises:
        OperationalError: the file exists already.
        MachineFault: it cannot be made; a crash leaves none or a whole one.
    """
    fixed = {key: text.encode() for key, text in {**settings, "format": FORMAT}.items()} | {"secret": secret}
    if path.exists():
        raise OperationalError(
            f"the private state {path} cannot be made: it is there", hint="name another file"
        )
    with machine(f"the private state {path} cannot be made", UNCHARGED):
        path.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        with made_aside(path) as aside, closing(sqlite3.connect(aside)) as database:
            database.executescript(f"BEGIN; {TABLES}")
            database.executemany("INSERT INTO setting VALUES (?, ?)", sorted(fixed.items()))
            database.commit()


IN_USE = "in use"
"""What the sum says while an append is under way, and after one that was killed: nothing is compared then."""


def seal_state(path: Path, *, closed: bool) -> None:
    """Keep the hash of a closed state beside it: SQLite keeps none, and a flipped bit would be a wrong sum.

    Args:
        path: the state.
        closed: False as long as somebody may write to it.
    """
    intact = closed and not beside(path, "-journal").exists()  # else SQLite will still undo what failed
    write_private(beside(path, ".sum"), (file_hash(path) if intact else IN_USE).encode())


def check_seal(path: Path) -> None:
    """Refuse a state that is not what its last append left.

    Raises:
        IntegrityError: it was damaged, or is an older copy.
    """
    seal = beside(path, ".sum")
    if not seal.exists():
        return
    text = seal.read_bytes()
    if text != IN_USE.encode() and text != file_hash(path).encode():
        raise IntegrityError(
            f"the private state {path} is damaged or an old copy",
            hint=f"bring back the newest one, with {seal.name}; nothing was drawn",
        )


def open_state(path: Path) -> StreamState:
    """Open the private state; an unfinished transaction is rolled back by SQLite.

    Raises:
        IntegrityError: it is not what its last append left.
        OperationalError: there is none, it is not private, or it is not a stream state.
    """
    if not path.is_file():
        raise OperationalError(f"there is no private state {path}", hint="name the one made with the release")
    if path.stat().st_mode & 0o077:
        raise OperationalError(
            f"the private state {path} is open to others", hint="chmod 600 it and find out why"
        )
    check_seal(path)
    database = sqlite3.connect(path, isolation_level=None, timeout=0)
    state = StreamState(path, database)
    try:
        # the directory too: a lost journal would undo a decision
        database.execute("PRAGMA synchronous = EXTRA")
        database.execute("PRAGMA secure_delete = ON")  # noise of a public batch is an exact sum
        version = state.setting("format").decode()
    except (sqlite3.DatabaseError, IntegrityError) as error:
        database.close()
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        if isinstance(error, sqlite3.OperationalError) and code != sqlite3.SQLITE_ERROR:
            raise  # the disk's fault, not the file's
        raise OperationalError(
            f"{path} is not a stream state", hint="name the one made with the release"
        ) from error
    if version != FORMAT:
        database.close()
        raise OperationalError(
            f"{path} has state format {version}", hint=f"this version reads format {FORMAT}"
        )
    return state
