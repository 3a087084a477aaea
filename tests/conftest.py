"""Fixtures that several test folders share, and the hypothesis profiles (no deadline: machines are shared)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("quick", deadline=None, max_examples=30)
settings.register_profile("slow", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


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


WHOLE = {
    "axis", "bad_input", "baselines_local", "blas", "central_search", "cli", "client_js",
    "client_js_hostile", "client_once", "combine", "cuts", "dbapi", "dialects", "docs_collections", "examples", "help",
    "export",
    "hats_release", "joint_variance", "ledger", "local_centre", "local_doors", "local_influence",
    "local_joint", "local_mechanisms", "local_parts", "local_positive", "local_raw", "local_release",
    "local_report", "local_rounds", "local_spikes", "local_tau", "local_totals", "local_weight", "lost",
    "no_nan", "participation", "plan", "plan_refusals", "refusals", "releases", "report", "report_notebook",
    "residual_release", "services_release", "settings", "shell", "spatial_baselines", "sql_mutants", "sql_random",
    "sql_tableau", "sqlalchemy", "stream_append", "stream_cli", "stream_grid", "stream_plan",
    "stream_asked", "stream_rules", "superset", "survey_page", "toy_time_strategy", "userlevel_predict", "view",
    "wire", "wire_cancel", "wire_crowd", "wire_gate",
    "workload",
}  # fmt: skip
"""Modules that publish or collect whole releases, start programs, or draw thousands of
programs at random. `make quick` leaves them out; those of more than about four seconds belong here."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what `make quick` leaves out."""
    for item in items:
        if item.path.stem.removeprefix("test_") in WHOLE:
            item.add_marker(pytest.mark.whole)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real stars, named by DPSQL_DATA; tests over it skip where it is absent."""
    root = Path(os.environ.get("DPSQL_DATA", ""))
    if not os.environ.get("DPSQL_DATA") or not root.is_dir():
        pytest.skip("DPSQL_DATA names no folder of real stars")
    return root
