"""The `collection:` part of a catalog: what fits together, and what to write instead."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.catalog import Catalog, Collection, catalog_from_json, parse_catalog
from dpsql.catalog.collection import counted_share
from dpsql.errors import CatalogError
from dpsql.local.survey import design_of, public_axis_maker, survey_of

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


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("{epsilon: 0}", "collection.epsilon", "above 0"),
        ("{epsilon: -1}", "collection.epsilon", "above 0"),
        ("{epsilon: 40}", "collection.epsilon", "at most 16"),
        ("{tau: 0}", "tau", "from 1 to 10000, `theory` or `estimate`"),
        ("{tau: auto}", "tau", "from 1 to 10000, `theory` or `estimate`"),
        ("{tau: theory}", "row_guess", "go together"),
        ("{tau: 2, row_guess: {1: 1}}", "row_guess", "go together"),
        ("{row_bit_cap: 3, row_guess: {1: 1}}", "row_guess", "go together"),
        ("{row_bit_cap: 0}", "row_bit_cap", "a number from 1 to 10000, `auto` or `estimate`"),
        ("{row_weighting: bit, tau: 2}", "tau", "row_bit_cap"),
        ("{row_weighting: none, row_bit_cap: 2}", "row_bit_cap", "slots have no bit"),
        ("{row_weighting: mar}", "row_weighting", "input should be 'bit' or 'none'"),
        ("{tau: 2, row_bit_cap: 2}", "row_bit_cap", "slots have no bit"),
        ("{row_bit_cap: estimate, row_share: 0}", "row_share", "raise it"),
        ("{row_bit_cap: estimate, shuffled: true}", "shuffled", "one round"),
        ("{tau: theory, row_guess: {1: 0.5}}", "row_guess", "add up to 1/2"),
        ("{tau: theory, row_guess: {1: 1.5, 2: -0.5}}", "row_guess", "add up"),
        ("{tau: theory, row_guess: {0: 1}}", "row_guess", "at least one"),
        ("{tau: estimate, row_share: 0}", "row_share", "raise it"),
        ("{tau: estimate, shuffled: true}", "shuffled", "one round"),
        ("{row_share: 1}", "row_share", "below 1"),
        ("{row_share: 0.5, joint: {hot: {" + GRID + ", share: 1/2}}}", "collection", "lower them"),
        ("{joint: {hot: {" + GRID + ", share: 0}}}", "share", "above 0"),
        ("{joint: {hot: {axes: [answer.age, answer.minutes], share: 0.1}}}", "axes", "three to six"),
        ("{joint: {hot: {axes: [answer.age, answer.age, answer.minutes], share: 0.1}}}", "joint", "twice"),
        ("{joint: {hot: {axes: [answer.age, answer.sex, answer.minutes], share: 0.1}}}", "axes", "no view"),
        ("{shares: {nothing: 0.1}}", "shares", "no such view"),
        ("{shares: {travel: 0}}", "shares", "above 0"),
        ("{shares: {travel: 0.9, places: 0.9}}", "shares", "more than 1"),
        ("{shares: {travel: 1/2, places: 1/2}}", "collection", "lower them"),
    ],
)
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
