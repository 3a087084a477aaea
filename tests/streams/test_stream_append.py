"""Appending to a stream: what is published, what is refused, what the private side keeps."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from dpsql.errors import (
    IntegrityError,
    InternalError,
    OperationalError,
    PrivacyError,
    ReleaseError,
)
from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.continual.prefixes import fda_strategy, subtraction_strategy
from dpsql.mechanisms.continual.time_tree import NodeRead, TimeStrategy, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.mechanisms.distribution import LAPLACE as L
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.streams import public as stream_public
from dpsql.streams.append import Batch, StreamNoise, StreamSpec, StreamStatistic, opened_stream, weighted_sum
from dpsql.streams.public import StreamManifest, read_manifest, read_segments, write_manifest
from dpsql.streams.state import IN_USE, open_state, seal_state
from dpsql.tree import IntArray
from tests.time_forms import create_stream, ending, lasting

pytestmark = pytest.mark.usefixtures("publishes")

SECRET = bytes(range(32))
TREE = tree_strategy(L, (1, 3, 6), (5, 3, 2))
STRATEGIES: list[TimeStrategy] = [
    TREE,
    tree_strategy(L),
    fda_strategy(L, 12),
    subtraction_strategy(L, 12, 3, 3),
    ending(12),
    lasting(2, "running", "1"),  # a band of 8 batches
]
STATISTICS = (
    StreamStatistic(L, (AxisBudget(np.array([1, 2]), 2),), Fraction(1), 1),
    StreamStatistic(L, (AxisBudget(np.array([1, 1, 1]), 1),), Fraction(1, 2), 1),
)
DATA = np.random.default_rng(5).integers(0, 50, (12, 5))


class Place(NamedTuple):
    """A stream under test: its two sides and its specification."""

    directory: Path
    private: Path
    spec: StreamSpec

    def append(
        self, number: int, rows: IntArray | None = None, people: tuple[str, ...] = (), seed: int | None = None
    ) -> StreamManifest:
        """Append one batch, by default the one of DATA; without a seed there is no noise."""
        x = DATA[number] if rows is None else rows
        noise = ZeroNoise() if seed is None else ExactNoise(insecure_test_entropy(seed))
        with opened_stream(self.directory, self.private, self.spec) as stream:
            batch = Batch(number, x.tobytes(), (x[:2], x[2:]), people, {"late": 1})
            statistics = [s._replace(law=self.spec.strategy.law) for s in STATISTICS]
            return stream.append(batch, StreamNoise(statistics, noise))

    def columns(self) -> dict[str, IntArray]:
        return read_segments(self.directory, read_manifest(self.directory))

    def private_rows(self, query: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.private)) as database:
            return database.execute(query).fetchall()


Make = Callable[..., Place]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def stream(strategy: TimeStrategy = TREE, lifetime: int | None = None) -> Place:
        spec = StreamSpec(strategy, (2, 3), lifetime)
        place = Place(tmp_path / "shop.dpsql", tmp_path / ".dpsql" / "shop.stream", spec)
        create_stream(place.directory, place.private, spec, release_id="r1", secret=SECRET)
        return place

    return stream


def exact(place: Place, row: int) -> int:
    """The exact number that a segment row stands for."""
    found = place.columns()
    lo, hi = int(found["lo"][row]), int(found["hi"][row])
    cell = int(found["cell"][row]) + (2 if found["statistic"][row] else 0)
    (emission,) = (e for e in place.spec.strategy.emissions(hi - 1) if e.lo == lo)
    return int(DATA[lo:hi, cell].sum() if emission.weights is None else emission.weights @ DATA[lo:hi, cell])


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: str(s.kind))
def test_without_noise_every_published_number_is_exact(make: Make, strategy: TimeStrategy) -> None:
    place = make(strategy)
    for number in range(12):
        manifest = place.append(number)
        assert manifest.as_of_batch == number
    found = place.columns()
    wanted = sum(len(strategy.emissions(number)) for number in range(12)) * 5
    assert found["value"].size == wanted
    for row in range(0, wanted, 7):
        assert found["value"][row] == exact(place, row)
    assert place.private_rows("SELECT count(*) FROM outbox") == [(0,)]
    assert place.private_rows("SELECT count(*) FROM noise") == [(0,)]
    if all(e.weights is None for e in strategy.emissions(0)):
        kept = place.private_rows("SELECT count(DISTINCT position) FROM prefix_sum")[0][0]
        assert isinstance(kept, int) and kept <= 5


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s.kind == "prefix"], ids=lambda s: str(s.kind))
def test_a_node_read_twice_keeps_its_draw(make: Make, strategy: TimeStrategy) -> None:
    place = make(strategy)
    for number in range(12):
        place.append(number, seed=number)
    found = place.columns()
    prefix = found["value"][(found["statistic"] == 0) & (found["cell"] == 0)] - np.cumsum(DATA[:, 0])
    reads = [strategy.emissions(t)[0].reads for t in range(12)]
    nodes = sorted({read.node for row in reads for read in row})
    matrix = np.array([[sum(r.sign for r in row if r.node == node) for node in nodes] for row in reads])
    solution = np.linalg.lstsq(matrix, prefix, rcond=None)[0]
    assert np.allclose(matrix @ solution, prefix)  # the same node noise explains every prefix
    assert sum(len(row) for row in reads) > len(nodes)


def test_an_empty_batch_is_noised(make: Make) -> None:
    place = make()
    for number in range(12):
        place.append(number, np.zeros(5, np.int64), seed=number)
    assert np.count_nonzero(place.columns()["value"]) > 20


def test_lifetime_cap(make: Make) -> None:
    place = make(lifetime=2)
    place.append(0, people=("ann", "bob"))
    place.append(1, people=("ann",))
    with opened_stream(place.directory, place.private, place.spec) as stream:
        assert stream.admitted(["ann", "bob", "cid"]).tolist() == [False, True, True]
    with pytest.raises(PrivacyError, match="lifetime"):
        place.append(2, people=("ann",))
    assert place.private_rows("SELECT max(number) FROM batch") == [(1,)]  # rolled back as a whole
    place.append(2, people=("bob", "bob"))
    with opened_stream(place.directory, place.private, place.spec) as stream:
        assert stream.admitted(["bob"]).tolist() == [False]
        assert stream.state.left_out() == {"late": 3}


def test_private_state_is_private(make: Make) -> None:
    place = make(lifetime=9)
    place.append(0, people=("ann@example.org",))
    assert place.private.stat().st_mode & 0o777 == 0o600
    assert place.private.parent.stat().st_mode & 0o777 == 0o700
    assert b"ann@example.org" not in place.private.read_bytes()
    public = b"".join(path.read_bytes() for path in place.directory.rglob("*") if path.is_file())
    with opened_stream(place.directory, place.private, place.spec) as stream:
        ((digest,),) = stream.state._database.execute("SELECT digest FROM batch").fetchall()
    assert digest not in public and digest.hex().encode() not in public and SECRET not in public
    place.private.chmod(0o644)
    with pytest.raises(OperationalError, match="open to others"):
        place.append(1)


def test_a_restored_old_private_file_is_refused(make: Make, tmp_path: Path) -> None:
    place = make()
    place.append(0, seed=1)
    old = shutil.copy(place.private, tmp_path / "old")
    place.append(1, seed=2)
    newest = shutil.copy(place.private, tmp_path / "newest")
    shutil.copy(old, place.private)
    before = (place.directory / "manifest.json").read_bytes()
    with pytest.raises(IntegrityError, match="old copy"):
        place.append(1, seed=3)
    assert (place.directory / "manifest.json").read_bytes() == before
    shutil.copy(newest, place.private)
    assert place.append(2, seed=4).as_of_batch == 2


def test_a_state_with_a_flipped_bit_is_refused(make: Make) -> None:
    """In a stored sum, where SQLite does not see it; after an append that was killed nothing is compared."""
    place = make()
    place.append(0, seed=1)
    good = place.private.read_bytes()
    (stored,) = place.private_rows("SELECT sums FROM prefix_sum LIMIT 1")[0]
    at = good.index(stored)
    place.private.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(IntegrityError, match="is damaged or an old copy"):
        place.append(1)
    place.private.write_bytes(good)
    kept = place.private.with_name(place.private.name + ".sum")
    kept.write_text(IN_USE)
    assert place.append(1).batches == 2 and kept.read_text() != IN_USE
    journal = place.private.with_name(place.private.name + "-journal")
    journal.touch()  # what SQLite leaves where it could not remove it, and will undo
    seal_state(place.private, closed=True)
    assert kept.read_text() == IN_USE
    assert place.append(2).batches == 3 and kept.read_text() != IN_USE


def test_a_state_that_went_its_own_way_is_refused(make: Make, tmp_path: Path) -> None:
    """Two copies of one state decide batch 1 with different noise: the second one never gets marked or published."""
    place = make()
    place.append(0, seed=1)
    old = shutil.copy(place.private, tmp_path / "old")
    aside = shutil.copytree(place.directory, tmp_path / "aside")
    place.append(1, seed=2)
    published = shutil.copytree(place.directory, tmp_path / "published")
    shutil.copy(old, place.private)
    place.private.with_name(place.private.name + ".sum").unlink()
    shutil.rmtree(place.directory)
    shutil.copytree(aside, place.directory)

    def stop(step: str) -> None:
        if step == "committed":
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        opened_stream(place.directory, place.private, place.spec, kill_point=stop) as stream,
    ):
        batch = Batch(1, DATA[1].tobytes(), (DATA[1][:2], DATA[1][2:]))
        stream.append(batch, StreamNoise(STATISTICS, ExactNoise(insecure_test_entropy(99))))
    shutil.rmtree(place.directory)
    shutil.copytree(published, place.directory)
    with pytest.raises(IntegrityError, match="other values"):
        place.append(2, seed=5)


def test_a_changed_public_side_is_refused(make: Make) -> None:
    place = make()
    place.append(0, seed=1)
    manifest = read_manifest(place.directory)
    place.append(1, seed=2)
    newest = read_manifest(place.directory)
    write_manifest(place.directory, manifest)
    with pytest.raises(IntegrityError, match="missing"):
        place.append(2)
    write_manifest(place.directory, newest)
    path = place.directory / newest.segments[1].file
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(IntegrityError, match="segment"):
        place.append(2)


def test_other_release_or_specification_is_refused(make: Make, tmp_path: Path) -> None:
    place = make()
    with pytest.raises(IntegrityError, match="another specification"):
        place._replace(spec=StreamSpec(fda_strategy(L, 12), (2, 3))).append(0)
    create_stream(tmp_path / "other", tmp_path / "other.stream", place.spec, release_id="r2", secret=SECRET)
    with pytest.raises(IntegrityError, match="another release"):
        place._replace(directory=tmp_path / "other").append(0)
    with pytest.raises(OperationalError, match="already contains"):
        create_stream(place.directory, tmp_path / "third", place.spec, release_id="r", secret=SECRET)
    with pytest.raises(OperationalError, match="cannot be made"):
        create_stream(tmp_path / "y", place.private, place.spec, release_id="r", secret=SECRET)
    with (
        pytest.raises(InternalError, match="fit"),
        opened_stream(place.directory, place.private, place.spec) as stream,
    ):
        stream.append(Batch(0, b"", (np.zeros(2, np.int64),)), StreamNoise(STATISTICS, ZeroNoise()))


def test_unreadable_sides_are_typed_errors(make: Make, tmp_path: Path) -> None:
    place = make()
    with pytest.raises(OperationalError, match="no private state"):
        open_state(tmp_path / "none")
    (tmp_path / "junk").write_bytes(b"not a database, but long enough to look at" * 9)
    (tmp_path / "junk").chmod(0o600)
    with pytest.raises(OperationalError, match="not a stream state"):
        open_state(tmp_path / "junk")
    manifest = place.directory / "manifest.json"
    good = json.loads(manifest.read_text())
    for bad in (
        "",
        "[]",
        "{}",
        json.dumps({**good, "format": 9}),
        json.dumps({**good, "segments": [{"file": "../x", "sha256": "", "batch": 0}]}),
        json.dumps({**good, "segments": [{"file": "x", "sha256": "", "batch": 1}]}),
    ):
        manifest.chmod(0o644)
        manifest.write_text(bad)
        with pytest.raises(ReleaseError):
            read_manifest(place.directory)


def test_a_reader_keeps_its_snapshot(make: Make) -> None:
    place = make()
    for number in range(4):
        place.append(number, seed=number)
    snapshot = read_manifest(place.directory)
    before = read_segments(place.directory, snapshot)
    for number in range(4, 8):
        place.append(number, seed=number)
    after = read_segments(place.directory, snapshot)
    assert all((before[column] == after[column]).all() for column in before)
    now = read_manifest(place.directory)
    assert now.segments[:4] == snapshot.segments and snapshot.as_of_batch == 3
    assert read_segments(place.directory, StreamManifest("r1"))["value"].size == 0


def test_published_status_does_not_depend_on_the_rows(make: Make, tmp_path: Path) -> None:
    """Same files, same row counts, same sizes for an empty batch and a full one."""
    shapes, spec = [], make().spec
    for name, rows in (("a", np.zeros(5, np.int64)), ("b", DATA[0] * 1000)):
        place = Place(tmp_path / name, tmp_path / f"{name}.state", spec)
        create_stream(place.directory, place.private, place.spec, release_id="r", secret=SECRET)
        place.append(0, rows)
        found = place.columns()
        shapes.append([found[column].tolist() for column in ("statistic", "level", "lo", "hi", "cell")])
    assert shapes[0] == shapes[1]


def test_gaussian_draws_scale_with_both_shares() -> None:
    budget = np.tile([1, 2], 3000)
    # sigma^2 400 at full budget
    statistic = StreamStatistic(GAUSSIAN, (AxisBudget(budget, 2),), Fraction(1, 400), 1)
    draw = StreamNoise([statistic], ExactNoise(insecure_test_entropy(3)))
    (drawn,) = draw.node((0,), NodeRead(0, 1, Fraction(1, 4), 1), [np.zeros(6000, np.int64)])
    spread = drawn.reshape(3000, 2).var(axis=0)
    assert np.allclose(spread, [400 * 4 * 4, 400 * 4], rtol=0.15)


def test_long_streams_are_listed_in_pages(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_public, "PAGE", 4)
    place = make()
    snapshot = place.append(0, seed=0)
    for number in range(1, 11):
        head = place.append(number % 12, seed=number)
    assert [page.batch for page in head.pages] == [0, 4] and [s.batch for s in head.segments] == [8, 9, 10]
    full = read_manifest(place.directory)
    assert full.pages == () and full.as_of_batch == head.as_of_batch == 10
    assert full.segments[:1] == snapshot.segments
    assert (
        read_segments(place.directory, head)["value"] == read_segments(place.directory, full)["value"]
    ).all()
    assert place.append(0, seed=99).as_of_batch == 10
    page = place.directory / head.pages[0].file
    page.chmod(0o644)
    page.write_text(page.read_text() + " ")
    with pytest.raises(IntegrityError, match="page"):
        read_manifest(place.directory)


def test_weighted_sums_are_whole_numbers_modulo_64_bits() -> None:
    """Against Python's integers: random, and where 64 bits wrap."""
    rng = np.random.default_rng(3)
    most = (1 << 31) - 1
    for terms in (1, 3, 2100):
        weights = rng.integers(-most, most, terms, endpoint=True).tolist()
        values = [rng.integers(-(1 << bits), 1 << bits, 5) for bits in rng.integers(1, 63, terms)]
        exact = [sum(w * int(v[cell]) for w, v in zip(weights, values, strict=True)) for cell in range(5)]
        found = weighted_sum(zip(weights, values, strict=True), 5).tolist()
        assert [(a - b) % (1 << 64) for a, b in zip(found, exact, strict=True)] == [0] * 5
