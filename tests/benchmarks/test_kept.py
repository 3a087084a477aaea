"""Kept figures: what was printed is what is kept, a result ends with its inputs, a stopped command goes on."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import kept
from benchmarks.figures import Figures
from benchmarks.kept import REASONS
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
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "tool" / "count.py").write_text(TOOL)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "tool")
    git(tmp_path, "commit", "-qm", "tool")
    monkeypatch.setattr(kept, "PROJECT", tmp_path)
    monkeypatch.setattr(kept, "RESULTS", tmp_path / "benchmarks" / "results")
    monkeypatch.setattr(kept, "PAGE", tmp_path / "benchmarks" / "results" / "figures.md")
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
    page = (project / "benchmarks" / "results" / "figures.md").read_text()
    assert "## Counting" in page
    assert r"| cells that \<differ\> | 0 | \<= 0 |" in page
    assert "Not kept yet: `other`." in page
    (project / "tool" / "count.py").write_text(TOOL + "# changed\n")
    (project / "benchmarks" / "results" / "count.jsonl").unlink()
    assert command(monkeypatch, "--only", "count") == 2, "what is not committed is not measured"
    git(project, "commit", "-qam", "tool changed")
    assert command(monkeypatch, "--only", "count") == 0
    assert times_run(project) == 2


def test_a_short_figure_is_bold_and_the_exit_code(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(monkeypatch) == 1
    page = (project / "benchmarks" / "results" / "figures.md").read_text()
    assert "2 of 3 figures hold." in page
    assert r"| other | **3** | \<= 2 |" in page
    assert "- other: " in page
    assert times_run(project) == 1


def test_every_short_figure_has_a_reason_and_no_other_figure_has() -> None:
    short = {kept.promise(figure) for run in RUNS for figure in kept.kept(run) if not figure.held}
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
        if re.search(r"figures import .*\bmain\b", path.read_text())
    ]
    assert modules
    assert [module for module in modules if f"benchmarks.{module}" not in commands] == []


def test_a_promise_over_many_cells_is_its_worst_and_nobody_promises_more_than_150(
    capsys: pytest.CaptureFixture[str],
) -> None:
    figures = Figures()
    for name, share in {"east": 0.95, "west": 0.99, "north": 0.94}.items():
        figures.within("coverage", share, 0.93, 0.97, name)
    figures.at_most("errors", 0, 0)
    assert figures.finish() == 1
    lines = kept.figures_of(capsys.readouterr().out.splitlines())
    assert lines == [
        ("errors", "0", "<= 0", True),
        ("coverage, worst of 3 (west)", "0.99", "0.93 to 0.97", False),
    ]
    assert sum(len(kept.kept(run)) for run in RUNS) <= 150
