"""An audit makes a release by blocks again from its noisy integers, and finds what was changed."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from dpsql.curator.audit import audit_release
from dpsql.errors import ReleaseError
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release import open_release
from tests.central.test_blocks_release import FULL, SPARSE, city, publish
from tests.privacy.test_audit_release import changed


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("sparse", "full")}
    return {name: publish(city(folders[name], SPARSE if name == "sparse" else FULL)) for name in folders}


def failures(path: Path) -> set[str]:
    """Of all but the entropy, which these tests repeat."""
    report = audit_release(path, ExactNoise(insecure_test_entropy(1)), catalog=None, samples=0)
    return {check.what for check in report.checks if check.held is False and "entropy" not in check.what}


@pytest.mark.parametrize("name", ["sparse", "full"])
def test_a_fresh_release_passes_and_nothing_is_left_out(releases: dict[str, Path], name: str):
    report = audit_release(releases[name], ExactNoise(insecure_test_entropy(1)), catalog=None, samples=0)
    assert failures(releases[name]) == set()
    assert "what noisy numbers chose follows from them" in {check.what for check in report.checks}
    assert not any(check.what.startswith("numbers of") for check in report.checks)


LAST = "UPDATE measurement_0 SET value = value + 500 WHERE r1 = (SELECT max(r1) FROM measurement_0)"
BUDGETS = "budgets follow from what noisy numbers chose"
CHOSEN = "what noisy numbers chose follows from them"


@pytest.mark.parametrize(
    ("name", "change", "found"),
    [
        ("sparse", "UPDATE measurement_0 SET budget = budget * 2 WHERE r1 = 3", BUDGETS),
        ("sparse", LAST, CHOSEN),
        ("sparse", "UPDATE variance_2 SET within_a = within_a / 2", CHOSEN),
        ("sparse", "UPDATE variance_3 SET noise_b = noise_b / 2", CHOSEN),
        ("sparse", "UPDATE node_combination_1 SET estimate = estimate + 99999999 WHERE n1 = 9 AND n2 = 9", CHOSEN),
        ("full", "UPDATE measurement_1 SET value = value + 90000 WHERE r1 = 7", CHOSEN),
    ],
)  # fmt: skip
def test_what_was_changed_is_found(
    releases: dict[str, Path], tmp_path: Path, name: str, change: str, found: str
):
    path = changed(releases[name], tmp_path, change)
    assert found in failures(path)


def test_a_line_of_another_length_is_found(releases: dict[str, Path], tmp_path: Path):
    """One more integer could carry anything."""
    line = "INSERT INTO measurement_0 SELECT max(r1) + 1, 42, max(budget) FROM measurement_0"
    path = changed(releases["sparse"], tmp_path, line)
    assert failures(path) & {"rebuilt from its catalog", "readable as a release of this version"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE variance_2 SET parent = 1000000 WHERE rowid = 5",
        "UPDATE variance_2 SET parent = rowid WHERE rowid = 5",
        "UPDATE variance_2 SET lo1 = -3 WHERE rowid = 5",
        "UPDATE variance_2 SET hi1 = lo1 WHERE rowid = 5",
    ],
)
def test_boxes_that_are_no_forest_are_refused_in_a_line(
    releases: dict[str, Path], tmp_path: Path, change: str
):
    path = changed(releases["sparse"], tmp_path, change)
    refused = pytest.raises(ReleaseError, match="variance_2 has no model")
    with closing(open_release(path, insecure=True)) as release, refused:
        release.reading(release.meta.statistics.index(next(s for s in release.statistics if 2 in s.models)))
