"""Exact cells become noisy in `dpsql.mechanisms.distribution` alone: by name in the source, by type for mypy."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from dpsql.central.placed_rows import CountedCells
from dpsql.contributions.histogram import NoisyHistogram, draw_histogram
from dpsql.mechanisms import distribution
from dpsql.mechanisms.designs.adaptive import AdaptedView
from dpsql.mechanisms.designs.blocks import Blocks, DrawnBlocks
from dpsql.mechanisms.designs.measurement import Measurement
from dpsql.mechanisms.offers import draw_view
from dpsql.release.write import StatisticContent
from dpsql.streams.append import StreamStatistic
from dpsql.streams.public import NoisyNode
from dpsql.tree import Exact, Noisy

pytestmark = pytest.mark.long

PACKAGE = Path(distribution.__file__).parents[1]
LAW = "mechanisms/distribution.py"

READERS = {"curator/audit/contents.py", "streams/publish.py", "streams/state.py"}
"""Modules that read noisy integers back from where they were stored."""


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the last part of its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            match node.func:
                case ast.Name(id=name) | ast.Attribute(attr=name):
                    yield name, node


def constructs(text: str) -> bool:
    """Whether a module calls `Noisy`, or casts to it."""
    return "Noisy" in text and any(
        name == "Noisy" or (name == "cast" and "Noisy" in ast.unparse(call.args[0]))
        for name, call in calls(ast.parse(text))
    )


def adds_noise(text: str) -> bool:
    """Whether a module hands exact integers to a source of noise."""
    return ("laplace" in text or "gaussian" in text) and any(
        (name == "laplace" and len(call.args) + len(call.keywords) == 3)
        or (name == "gaussian" and len(call.args) + len(call.keywords) == 3)
        for name, call in calls(ast.parse(text))
    )


def callers(name: str) -> set[str]:
    """Modules that call a function by this name."""
    return {
        module
        for module, text in sources().items()
        if module != LAW and name in text and any(called == name for called, _ in calls(ast.parse(text)))
    }


def sources() -> dict[str, str]:
    return {str(path.relative_to(PACKAGE)): path.read_text() for path in PACKAGE.rglob("*.py")}


def test_the_law_alone_makes_noisy_integers() -> None:
    modules = {module for module, text in sources().items() if constructs(text) and imports_noisy(text)}
    assert modules == {LAW}


def imports_noisy(text: str) -> bool:
    """Whether `Noisy` is the array type here and no class of this name."""
    return not any(
        isinstance(node, ast.ClassDef) and node.name == "Noisy" for node in ast.walk(ast.parse(text))
    )


def test_the_law_alone_adds_noise_to_cells() -> None:
    assert {module for module, text in sources().items() if adds_noise(text)} == {LAW}


def test_stored_integers_are_read_back_in_few_places() -> None:
    assert callers("published") == READERS


@pytest.mark.parametrize(
    "breach",
    [
        "x = Noisy(cells)",
        "x = tree.Noisy(cells)",
        "x = cast(Noisy, cells)",
        "x = typing.cast('Noisy', cells)",
    ],
)
def test_a_construction_elsewhere_is_seen(breach: str) -> None:
    assert constructs(breach)


@pytest.mark.parametrize("breach", ["noise.laplace(s, t, cells)", "noise.gaussian(s2, n, exact=cells)"])
def test_a_draw_elsewhere_is_seen(breach: str) -> None:
    assert adds_noise(breach)


@pytest.mark.parametrize(
    ("takes", "argument", "kind"),
    [
        (Measurement.draw, "cells", Exact),
        (distribution.Laplace.draw, "exact", Exact),
        (distribution.Laplace.draw_bounded, "exact", Exact),
        (distribution.Laplace.draw_units, "exact", Exact),
        (distribution.Gaussian.draw_at, "exact", Exact),
        (distribution.Gaussian.draw_spread, "exact", Exact),
        (distribution.Gaussian.draw_spread, "return", Noisy),
        (draw_view, "histogram", Exact),
        (draw_histogram, "people", Exact),
        (StreamStatistic.noised, "exact", Exact),
        (StreamStatistic.noised, "return", Noisy),
        (CountedCells.of, "return", list[Exact]),
        (Blocks.restored, "value", Noisy),
        (distribution.NoisyView, "value", Noisy),
        (distribution.NoisyValues, "value", Noisy),
        (DrawnBlocks, "value", Noisy),
        (AdaptedView, "value", Noisy),
        (NoisyHistogram, "value", Noisy),
        (StatisticContent, "value", Noisy),
        (NoisyNode, "values", Noisy),
    ],
)
def test_types_tell_cells_from_noisy_integers(takes: Any, argument: str, kind: Any) -> None:
    assert get_type_hints(takes)[argument] == kind


def test_the_types_are_no_classes_at_run_time() -> None:
    array = distribution.published(distribution.np.arange(3))
    assert Exact(array) is array and Noisy(array) is array
