"""No hostile release hangs a reader, ends in a traceback, or answers for a signed one."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from nacl.signing import SigningKey

from dpsql.errors import ReleaseError
from dpsql.release import open_release, signature
from dpsql.release.verify import verify
from tests.release.hostile import Outcome, asked, make, names
from tests.release_fixture import make_rows, write_fixture
from tests.thinned import by_default

pytestmark = pytest.mark.long

SEED, STRANGER = bytes(range(32)), bytes(range(1, 33))
FEW = names()[::4]
"""Every kind is among them; all are asked by `make withstand`."""


def public_key(seed: bytes) -> str:
    return bytes(SigningKey(seed).verify_key).hex()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_fixture(tmp_path_factory.mktemp("hostile") / "good.dpsql", make_rows())


@pytest.fixture(scope="module")
def signed(good: Path) -> Path:
    path = good.with_name("signed.dpsql")
    path.write_bytes(good.read_bytes())
    signature.sign(path, SEED)
    return path


def told(outcome: Outcome) -> str:
    """What a refused reader reads: one line, not long, with nothing that commands a terminal."""
    assert outcome.how == "refused", outcome
    kind, line = outcome.told
    assert not re.search("[\x00-\x1f\x7f-\x9f]", line), line
    assert len(line) < 600, line
    return f"{kind}: {line}"


@pytest.mark.parametrize("name", FEW)
def test_a_hostile_release_is_refused_or_read(good: Path, tmp_path: Path, name: str):
    try:
        release = open_release(make(name, good, tmp_path / "hostile.dpsql"), insecure=True)
    except ReleaseError as error:
        assert not re.search("[\x00-\x1f\x7f-\x9f]", str(error))
    else:
        release.close()


READ = ("meta is a view that never ends", "NULL estimates", "nodes of no tree", "control characters in labels",
        "a statistic of too few models", "a catalog with control characters")  # fmt: skip


@pytest.mark.parametrize("name", by_default(READ, 1))
def test_a_reader_of_a_hostile_release_neither_hangs_nor_sees_a_traceback(
    good: Path, tmp_path: Path, name: str
):
    outcome = asked(make(name, good, tmp_path / "hostile.dpsql"))
    assert outcome.how in ("answered", "refused"), outcome
    if outcome.how == "refused":
        told(outcome)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_all_hostile_releases(tmp_path: Path):
    from benchmarks.withstand.hostile import measure

    assert measure(tmp_path) == 0


def test_a_signed_release_opens_for_who_requires_its_signer(signed: Path):
    key = public_key(SEED)
    release = open_release(signed, insecure=True, signers=[key])
    assert release.signer == signature.Signer(key, True)
    release.close()
    whole = verify(signed, None)
    assert whole.signer == signature.Signer(key, True)
    assert whole.numbers > 100


def test_without_a_requirement_the_signer_is_told_as_unchecked(signed: Path, good: Path):
    release = open_release(signed, insecure=True)
    assert str(release.signer).endswith("(not checked)")
    release.close()
    release = open_release(good, insecure=True)
    assert release.signer is None
    release.close()


def test_every_flipped_bit_is_found(signed: Path, tmp_path: Path):
    data, copy, key = signed.read_bytes(), tmp_path / "copy.dpsql", public_key(SEED)
    for place in (*range(0, len(data), len(data) // 60), len(data) - 1, len(data) - 70, len(data) - 110):
        damaged = bytearray(data)
        damaged[place] ^= 1
        copy.write_bytes(damaged)
        with pytest.raises(ReleaseError):
            open_release(copy, insecure=True, signers=[key])


def test_another_signature_is_refused(signed: Path, good: Path, tmp_path: Path):
    key, copy = public_key(SEED), tmp_path / "copy.dpsql"
    copy.write_bytes(good.read_bytes())
    with pytest.raises(ReleaseError, match="is not signed"):
        open_release(copy, insecure=True, signers=[key])
    signature.sign(copy, STRANGER)
    with pytest.raises(ReleaseError, match="not among the required signers"):
        open_release(copy, insecure=True, signers=[key])
    open_release(copy, insecure=True, signers=[key, public_key(STRANGER)]).close()
    trailer = signed.read_bytes()[-signature.TRAILER :]
    copy.write_bytes(good.read_bytes() + b"\0" + trailer)
    with pytest.raises(ReleaseError, match="changed after it was signed"):
        open_release(copy, insecure=True, signers=[key])


def test_a_log_beside_a_signed_release_is_refused(signed: Path, tmp_path: Path):
    """DuckDB plays it over the tables, for readers too, and no byte of the release changes."""
    path = make("a write-ahead log beside it", signed, tmp_path / "copy.dpsql")
    assert path.read_bytes() == signed.read_bytes()
    with pytest.raises(ReleaseError, match="lies beside"):
        open_release(path, insecure=True, signers=[public_key(SEED)])


def test_signers_are_named_by_key_file_or_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from dpsql.errors import InterfaceError

    one, two = "ab" * 32, "cd" * 32
    keys = tmp_path / "signers"
    keys.write_text(f"# whom we trust\n{one} the shop\n{two.upper()}\n")
    monkeypatch.delenv(signature.REQUIRED, raising=False)
    assert signature.required_signers() is None
    assert signature.required_signers(one) == {one}
    assert signature.required_signers(str(keys)) == {one, two}
    monkeypatch.setenv(signature.REQUIRED, two)
    assert signature.required_signers() == {two}
    for wrong in (str(tmp_path / "none"), str(tmp_path)):
        with pytest.raises(InterfaceError, match="neither a public key"):
            signature.required_signers(wrong)
    keys.write_text("nothing\n")
    with pytest.raises(InterfaceError, match="contains no public keys"):
        signature.required_signers(str(keys))


def swapped(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[], object], after: Callable[[], object]
) -> None:
    """Do something just before and just after DuckDB opens a file."""
    connect = duckdb.connect

    def slow(*given: Any, **named: Any) -> duckdb.DuckDBPyConnection:
        before()
        try:
            return connect(*given, **named)
        finally:
            after()

    monkeypatch.setattr("dpsql.release.read.duckdb.connect", slow)


def test_a_file_that_is_put_in_place_of_a_checked_one_is_refused(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The signed file is back before anybody looks: its folder was another one for a moment, so it never changed."""
    open_, away, other = tmp_path / "open", tmp_path / "away", tmp_path / "other"
    for folder in (open_, other):
        folder.mkdir()
    (open_ / "shop.dpsql").write_bytes(signed.read_bytes())
    make("huge estimates", signed, other / "shop.dpsql")
    swapped(
        monkeypatch,
        lambda: (open_.rename(away), other.rename(open_)),
        lambda: (open_.rename(other), away.rename(open_)),
    )
    with pytest.raises(ReleaseError, match=r"another file lay at|was changed"):
        open_release(open_ / "shop.dpsql", insecure=True, signers=[public_key(SEED)])


def test_a_signed_file_is_not_answered_from_what_the_process_had_open_there(signed: Path, tmp_path: Path):
    """DuckDB gives a process the database that it has open under a name, whatever file lies there now."""
    path = make("huge estimates", signed, tmp_path / "shop.dpsql")
    before = open_release(path, insecure=True)
    fresh = tmp_path / "fresh"
    fresh.write_bytes(signed.read_bytes())
    fresh.replace(path)
    with pytest.raises(ReleaseError, match="another file lay at"):
        open_release(path, insecure=True, signers=[public_key(SEED)])
    before.close()
    open_release(path, insecure=True, signers=[public_key(SEED)]).close()


def test_a_log_that_lies_beside_a_file_for_a_moment_is_refused(
    signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = make("a write-ahead log beside it", signed, tmp_path / "shop.dpsql")
    log = path.with_name(path.name + ".wal")
    text = log.read_bytes()
    log.unlink()
    swapped(monkeypatch, lambda: log.write_bytes(text), log.unlink)
    with pytest.raises(ReleaseError, match="write-ahead log"):
        open_release(path, insecure=True, signers=[public_key(SEED)])


def test_a_pipe_in_place_of_a_release_keeps_nobody_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "shop.dpsql")
    with pytest.raises(ReleaseError, match="no release"):
        signature.claimed_signer(tmp_path / "shop.dpsql")
