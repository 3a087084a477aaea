"""Fixtures that several test folders share, hypothesis profiles, and the entropy of the default suite."""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

import dpsql.client.entropy
import dpsql.noise
import tests.interfaces_release
from dpsql.noise import insecure_test_entropy
from dpsql.noise.discrete import Entropy
from dpsql.release.write import ReleaseBuilder
from tests.release_fixture import HAND_WRITTEN

settings.register_profile("quick", deadline=None, max_examples=30, derandomize=True)
settings.register_profile("slow", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


gc.set_threshold(20_000, 10, 10)  # looking for garbage after every 700 new objects took 4% of the CPU

_STATE = tempfile.TemporaryDirectory(prefix="dpsql-state-")
os.environ["DPSQL_STATE"] = _STATE.name
"""What tests publish is remembered apart from what their user publishes; programs that they start inherit it."""


@pytest.fixture(autouse=True, scope="module")
def _module_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures of a module have a memory of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPSQL_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """So has every test: throw-away ledgers charge the same rows again and again."""
    monkeypatch.setenv(
        "DPSQL_STATE", str(tmp_path_factory.getbasetemp() / "state-of-one-test" / os.urandom(8).hex())
    )


class RepeatedEntropy:
    """The operating system's source in the default suite: every run of one test draws the same bytes.

    A release with fresh noise shows a different number in every run, and an assertion on it fails once in so many runs.
    `make slow` draws from the system (`DPSQL_TEST_ENTROPY=system`), so does every program that a test starts.
    """

    def __init__(self) -> None:
        self._streams: list[Entropy] = []
        self._lock = threading.Lock()

    def __call__(self, size: int) -> bytes:
        with self._lock:
            return (self._streams[-1] if self._streams else os.urandom)(size)

    @contextmanager
    def stream(self, name: str) -> Iterator[None]:
        """Draws inside come from the stream of a test or a shared fixture."""
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest(), "big")
        self._streams.append(insecure_test_entropy(seed))
        try:
            yield
        finally:
            del self._streams[-1:]

    def forget(self) -> None:
        """From now on, draws come from the operating system."""
        self._streams.clear()
        self._lock = threading.Lock()  # another thread of the parent may have held it


ENTROPY = RepeatedEntropy()
if os.environ.get("DPSQL_TEST_ENTROPY") != "system":
    for module in (dpsql.noise, dpsql.client.entropy):
        module.os = SimpleNamespace(urandom=ENTROPY)  # type: ignore[attr-defined]
    os.register_at_fork(after_in_child=ENTROPY.forget)  # two children would draw the same noise


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """A stream of entropy for each test."""
    with ENTROPY.stream(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """A stream for each shared fixture, whichever test is the first to take it."""
    if fixturedef.scope == "function":
        return (yield)
    with ENTROPY.stream(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param_index', 0)}"):
        return (yield)


@pytest.fixture(scope="session")
def publishes() -> None:
    """Taken by each test, or fixture, that writes a whole release: `make quick` leaves these tests out."""


WHOLE_RELEASES = [Path(__file__).with_name(name) for name in ("kill", "oracle", "privacy", "statistical")]
"""Every test of these folders looks at whole releases: `make quick` leaves the folders out."""


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    """Modules of tests have no doctests, nor has what shows no prompt: looking into each took every worker seconds."""
    collectors = yield
    if collectors and (file_path.name.startswith("test_") or b">>>" not in file_path.read_bytes()):
        return [collector for collector in collectors if not isinstance(collector, DoctestModule)]
    return collectors


def pytest_collection_finish() -> None:
    """Modules and tests stay: nobody looks for garbage among them."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that publish, by the fixture that they or their fixtures take, or by their folder."""
    for item in items:
        if "publishes" in getattr(item, "fixturenames", ()) or item.path.parent in WHOLE_RELEASES:
            item.add_marker(pytest.mark.publishes)


@pytest.fixture(scope="session", autouse=True)
def _shops_published_once(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Workers of a run share the shops of `interfaces_release`; `make quick` publishes none, and sees who does."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    quick = "not publishes" in request.config.getoption("markexpr")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tests.interfaces_release, "ORIGINALS", None if quick else shared / "shops")
        yield


@pytest.fixture(scope="session", autouse=True)
def _releases() -> Iterator[list[Path]]:
    """Every release that this process writes, but for the one that tests write by hand."""
    releases: list[Path] = []
    write = ReleaseBuilder.write

    def noted(builder: ReleaseBuilder, path: Path, *arguments: Any, **options: Any) -> None:
        if builder.release_id != HAND_WRITTEN:
            releases.append(path)
        write(builder, path, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReleaseBuilder, "write", noted)
        yield releases


@pytest.fixture(autouse=True)
def _who_publishes_says_so(request: pytest.FixtureRequest, _releases: list[Path]) -> Iterator[None]:
    """Under `make quick`, a test that writes a release and does not take `publishes` fails: nobody keeps a list."""
    count, quick = len(_releases), "not publishes" in request.config.getoption("markexpr")
    yield
    assert not quick or len(_releases) == count or request.node.get_closest_marker("publishes"), (
        "this test writes a release: it, or the fixture that does, takes the fixture `publishes`"
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real stars, named by DPSQL_DATA; tests over it skip where it is absent."""
    root = Path(os.environ.get("DPSQL_DATA", ""))
    if not os.environ.get("DPSQL_DATA") or not root.is_dir():
        pytest.skip("DPSQL_DATA names no folder of real stars")
    return root
