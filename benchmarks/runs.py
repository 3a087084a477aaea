"""Every run that prints `figure` lines, in the order of the page docs/figures.md.

A run is what is measured again as a whole. Long targets are cut into parts, so that a stopped `make figures` loses one.
"""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    """One command and what it reads.

    Attributes:
        name: of the result file, and what `--only` takes.
        topic: heading on the page.
        command: a line for the shell, from the project's folder; `python` is the environment's.
        reads: paths of the project beside the package and the catalogs whose change makes the result an old one.
    """

    name: str
    topic: str
    command: str
    reads: tuple[str, ...]


def _modules(topic: str, folder: str, *parts: str) -> tuple[Run, ...]:
    """Modules of a folder of benchmarks: `measure rows` is the module `measure` with the argument `rows`."""
    return tuple(
        Run(
            "-".join([folder, *(word for word in part.split() if not word.startswith("-"))]),
            topic,
            f"python -m benchmarks.{folder}.{part}",
            (f"benchmarks/{folder}", "benchmarks/baselines", "benchmarks/page.py"),
        )
        for part in parts
    )


LOCAL_PARTS = ("axis", "rows", "bars", "rounds", "boxes", "lle")

RUNS: tuple[Run, ...] = (
    *_modules(
        "Privacy proved, files that attack, faults",
        "withstand",
        *("prove", "hostile", "fuzz", "frames", "soak", "kills", "faults", "damage", "exits"),
    ),
    *_modules(
        "One value, one table from every source", "sources", "places", "stars", "pairs", "mutants", "witness"
    ),
    *_modules(
        "Right, or marked as not",
        "answers",
        *(
            "measure",
            "quantiles",
            "moments",
            "selected",
            "bounds",
            "samples",
            "catalogs",
            "limits",
            "distinct",
            "totals",
            "words",
        ),
    ),
    *_modules("What BI tools send", "bi", "measure"),
    *_modules(
        "Accuracy of central releases",
        "central",
        *(
            "expected",
            "joint",
            "trees",
            "cubes",
            "text_cubes",
            "measure",
            "blocks",
            "unseen_planes",
            "unseen_planes held",
            "unseen_lines",
        ),
    ),
    *_modules("Accuracy about people", "userlevel", "measure", "predicted", "made_up", "nulls", "short"),
    *_modules("Facts about people", "people", "measure"),
    *_modules("Keys that nobody listed", "keys", "measure"),
    *_modules(
        "Reports of devices",
        "local",
        *(f"measure --only {part}" for part in LOCAL_PARTS),
        "collect",
        "columns",
        "totals",
    ),
    *_modules("Two trusts", "trusts", "measure"),
    *_modules("Streams", "streams", "ahead"),
    *_modules("Composite answers", "composites", "measure"),
    *_modules("Speed of answers", "speed", "measure"),
    *_modules("Scale", "scale", "measure", "big"),
    *_modules(
        "The first hour",
        "firsthour",
        "drafts",
        "designs",
        "readme",
        "unseen",
        "agents",
        "person",
        "devices",
        "pages",
    ),
    *_modules("Beside other libraries", "peers", "measure", "adult", "small"),
    Run("explore", "The first hour", "make explore", ("tests/explore", "Makefile")),
    Run(
        "mutants-run",
        "Tests that notice",
        "python -m benchmarks.mutants.run",
        (
            "benchmarks/mutants",
            *(f"tests/{part}" for part in ("noise", "budget", "ledger", "mechanisms", "privacy")),
        ),
    ),
    *(
        Run(f"suites-{name}", "Suites", command, ("tests", "docs", "benchmarks", "clients", "Makefile"))
        for name, command in (
            ("quick", "python -m tests.suites quick"),
            ("test", "python -m tests.suites test"),
            ("slow", "python -m tests.suites slow"),
            ("lowest", "python -m tests.suites lowest"),
            ("pythons", "python -m tests.suites --python"),
        )
    ),
    Run("wire", "Interfaces", "make wire", ("tests/interfaces", "Makefile")),
    Run(
        "production-serving",
        "Production",
        "python -m benchmarks.production.serving",
        ("benchmarks/production", "tests/interfaces", "tests/interfaces_release.py"),
    ),
    *(
        Run(
            f"production-{part}",
            "Production",
            f"python -m benchmarks.production.{part}",
            (
                "benchmarks/production",
                "tests/interfaces_release.py",
                "tests/engines/test_lakes.py",
                "examples",
                "deploy",
            ),
        )
        for part in ("pipelines", "stack", "soak")
    ),
    Run("engines", "Engines", "python -m tests.engines", ("tests/engines",)),
)
