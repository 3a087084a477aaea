"""All pairs of hostile keys: where join, unit, stream counter or canonical text disagree, by stored type and source.

The lists and the comparison are those of the tests; each of their cases compares all pairs of one stored type.
"""

from __future__ import annotations

import pytest

from benchmarks.figures import Figures, main
from tests.engines import test_source_values as postgresql
from tests.privacy import test_source_pairs as files


class Counter:
    """Counts cases by how they end."""

    def __init__(self) -> None:
        self.ends = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Of the call; of the set-up where that did not pass."""
        if report.when == "call" or report.outcome != "passed":
            self.ends[report.outcome] += 1


def measure(figures: Figures) -> None:
    """Run the tests and count."""
    counter, modules = Counter(), [str(module.__file__) for module in (files, postgresql)]
    pytest.main(["-q", "-p", "no:cacheprovider", "-k", "one_equality or pairs", *modules], plugins=[counter])
    texts = [stored.texts for stored in files.STORED] + [*postgresql.KEYS.values()]
    print(counter.ends)
    figures.table("sources: pairs of hostile keys of one stored type", sum(len(each) ** 2 for each in texts))
    title = "sources: stored types with a pair on which join, unit, counter or text disagree"
    figures.at_most(title, counter.ends["failed"] + counter.ends["skipped"], 0)


if __name__ == "__main__":
    main(measure)
