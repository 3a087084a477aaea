"""Kept figures: what was printed is what is kept, a result ends with its inputs, a stopped command goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import kept
from benchmarks.reasons import REASONS
from benchmarks.runs import RUNS, Run

COUNT = Run("count", "Counting", "python tool/count.py", ("tool",))
OTHER = Run("other", "Counting", "echo 'figure other: 3 (<= 2) short'; exit 1", ("elsewhere",))
TOOL = """from pathlib import Path
log = Path("runs.txt"); log.write_text((log.read_text() if log.exists() else "") + "x")
print("figure cells that <differ>: 0 (<= 0) ok")
print("figure coverage: 0.95 (>= 0.93) ok")
"""


def git(project: Path, *words: str) -> None:
    names = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(project), *names, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of two runs, committed."""
    (tmp_path / "tool").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "tool" / "count.py").write_text(TOOL)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "tool")
    git(tmp_path, "commit", "-qm", "tool")
    monkeypatch.setattr(kept, "PROJECT", tmp_path)
    monkeypatch.setattr(kept, "RESULTS", tmp_path / "benchmarks" / "results")
    monkeypatch.setattr(kept, "PAGE", tmp_path / "docs" / "figures.md")
    monkeypatch.setattr(kept, "RUNS", (COUNT, OTHER))
    return tmp_path


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["kept", *words])
    return kept.main()


def times_run(project: Path) -> int:
    return len((project / "runs.txt").read_text())


def test_a_result_is_kept_until_its_inputs_change(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch, "--only", "count") == 0
    assert command(monkeypatch, "--only", "count") == 0
    assert times_run(project) == 1
    page = (project / "docs" / "figures.md").read_text()
    assert "| Counting | `python tool/count.py` | 2 of 2 | " in page
    tables = (project / "benchmarks" / "results" / "README.md").read_text()
    assert r"| cells that \<differ\> | 0 | \<= 0 | ok |" in tables
    assert "Not kept yet: `other`." in page
    (project / "tool" / "count.py").write_text(TOOL + "# changed\n")
    (project / "benchmarks" / "results" / "count.jsonl").unlink()
    assert command(monkeypatch, "--only", "count") == 2, "what is not committed is not measured"
    git(project, "commit", "-qam", "tool changed")
    assert command(monkeypatch, "--only", "count") == 0
    assert times_run(project) == 2


def test_a_short_figure_is_bold_and_the_exit_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch) == 1
    page = (project / "docs" / "figures.md").read_text()
    assert "2 of 3 figures hold." in page
    assert r"| other | **3** | \<= 2 | |" in page.replace("|  |", "| |")
    assert "**0 of 1**" in page
    assert command(monkeypatch, "--missing") == 1
    assert times_run(project) == 1


def test_every_short_figure_has_a_reason_and_no_other_figure_has() -> None:
    short = {figure.figure for run in RUNS for figure in kept.kept(run) if not figure.held}
    assert short == set(REASONS)


def test_a_log_counts_for_its_own_revision(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = project / "log"
    log.write_text("figure coverage: 0.5 (>= 0.93) short\n")
    assert command(monkeypatch, "--only", "count", "--log", str(log), "--at", "HEAD") == 2
    assert "its last line is not `exit N`" in capsys.readouterr().err
    log.write_text("figure coverage: 0.5 (>= 0.93) short\nexit 1 at noon\n")
    (project / "tool" / "count.py").write_text(TOOL + "# changed\n")
    git(project, "commit", "-qam", "tool changed")
    assert command(monkeypatch, "--only", "count", "--log", str(log), "--at", "HEAD~1") == 1
    assert kept.kept(COUNT)[0].ended == 1
    assert command(monkeypatch, "--only", "count") == 0, (
        "the log was of an earlier revision, so the run is run"
    )


def test_every_module_that_prints_figures_is_a_run() -> None:
    commands = " ".join(run.command for run in RUNS)
    folder = Path(kept.__file__).parent
    modules = [
        ".".join(path.relative_to(folder).with_suffix("").parts)
        for path in folder.glob("*/*.py")
        if "figures.finish()" in path.read_text() and "__main__" in path.read_text()
    ]
    assert modules
    assert [module for module in modules if f"benchmarks.{module}" not in commands] == []
