"""The `collection:` part of a catalog: what fits together, and what to write instead."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.catalog import Catalog, catalog_from_json, parse_catalog
from dpsql.catalog.collection import Collection, counted_share
from dpsql.errors import CatalogError
from dpsql.local.survey import design_of, public_axis_maker, survey_of
from tests.statements import refusals

TEXT = (Path(__file__).parents[2] / "catalog" / "survey.yaml").read_text()
VIEW = "  three: {of: answer, axes: [answer.age, answer.minutes, answer.district], measures: [count]}\n"


def catalog_of(collection: str) -> Catalog:
    return parse_catalog(TEXT.replace("collection: {epsilon: 1}", f"collection: {collection}") + VIEW)


def collection_of(text: str) -> Collection:
    found = catalog_of(text).collection
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("text", "tau", "rows"),
    [
        ("{}", None, Fraction(1, 10)),
        ("{row_share: 1/20, row_bit_cap: 4}", None, Fraction(1, 20)),
        ("{row_bit_cap: estimate}", None, Fraction(1, 10)),
        ("{tau: 3}", 3, 0),
        ("{tau: 3, row_share: 0.05}", 3, Fraction(1, 20)),
        ("{row_weighting: none}", None, 0),
        ("{tau: 1}", 1, 0),
        ("{tau: estimate}", "estimate", Fraction(1, 10)),
        ("{tau: theory, row_guess: {0: 1/10, 1: 0.6, 2: 0.3}}", "theory", 0),
    ],
)
def test_tau_and_row_share_as_written(text: str, tau: int | str | None, rows: Fraction) -> None:
    found = collection_of(text)
    assert (found.tau, counted_share(found, one_row=False)) == (tau, rows)
    assert counted_share(found, one_row=True) == 0


def test_the_whole_part_survives_json() -> None:
    text = (
        "{tau: theory, row_guess: {1: 0.6, 2: 0.4}, row_share: 1/8, shares: {travel: 1/4},"
        " joint: {hot: {axes: [answer.age, answer.district, answer.minutes], share: 1/4}}}"
    )
    catalog = catalog_of(text)
    again = catalog_from_json(catalog.to_json())
    assert again.collection == catalog.collection
    assert again.collection is not None
    assert again.collection.row_guess == {1: Fraction(3, 5), 2: Fraction(2, 5)}
    assert again.collection.fixed_share == Fraction(5, 8)


GRID = "axes: [answer.age, answer.minutes, answer.district]"


def test_branching_is_the_plans() -> None:
    for text, cells in (("{}", 5), ("{branching: 3}", 3)):
        catalog = catalog_of(text)
        design = design_of(survey_of(catalog, public_axis_maker(catalog)), 1000)
        assert design.branching == cells


@pytest.mark.parametrize(("text", "place", "says"), refusals("collection"))
def test_refusals_name_the_place_and_what_to_write(text: str, place: str, says: str) -> None:
    with pytest.raises(CatalogError) as refused:
        catalog_of(text)
    assert place in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize("text", ["{tau: 2}", "{tau: estimate}", "{row_weighting: none}"])
def test_one_row_a_person_leaves_nothing_to_choose(text: str) -> None:
    catalog = catalog_of(text)
    survey = survey_of(catalog, public_axis_maker(catalog))
    with pytest.raises(CatalogError, match="everybody has one row"):
        design_of(survey, 1000)
