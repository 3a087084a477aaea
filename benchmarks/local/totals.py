"""Totals, averages and shares of facts that people report: coverage over three made-up stars and every way to collect.

| star | rows a person |
|---|---|
| pizza | log series, 1 to 28 |
| expenses | geometric of mean 3, at most 12; a fifth of the people has none |
| tweets | r^-1.7, 1 to 40 |

Each is collected by bits, by slots and by slots from a first round, from all people or a random half of them, under
both words of `participation`, the random ones with and without `everybody`. The truth is about everybody where that is
declared, else about those who reported.

| figure | of the count, the sum and the average of a measure, and the share of some rows |
|---|---|
| intervals | 95% intervals, whose upper end is open, that cover the exact total |
| standard errors | totals within 1.96 of them of the rows that the collection counts: slots leave out those beyond |
| without error | totals whose noise is 0 |
| unasked | under `max_ids` below the largest number of rows: outside of the interval, or without the sentence |
| boxes | squared errors of counts under 1 to 3 conditions, by those of one row a person whose total is known |
| forecast | standard errors of ranges that `collection-plan` says, within a factor of 2 of those printed |
"""

from __future__ import annotations

import itertools
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dpsql
from benchmarks.figures import Figures, main
from benchmarks.local.simulated import simulate_tallies
from dpsql.catalog import load_catalog
from dpsql.catalog.collection import ParticipationWord
from dpsql.client import Plan, read_plan
from dpsql.local.collector import CollectionManifest
from dpsql.local.content import release_content
from dpsql.local.files import write_release_file
from dpsql.local.forecast import asks_rows_alone, first_plan, predict, row_reports, second_plan
from dpsql.local.plan import CollectionDesign
from dpsql.local.simulate import chosen
from dpsql.local.survey import Survey, design_of, public_axis_maker, survey_of
from dpsql.local.tallies import CountedCollection, RespondentRows
from dpsql.release.write import ReleaseBuilder
from dpsql.results.result import Result

PEOPLE, LOW, HIGH = 20_000, 0.93, 0.98
STARS = {"pizza": 28, "expenses": 12, "tweets": 40}
"""The most rows of a person."""
WAYS = {"bits": "", "tau 3": ", tau: 3", "tau estimate": ", tau: estimate"}
SHARE = "COUNT(*) FILTER (WHERE kind < 4) * 1.0 / COUNT(*)"
WORDS: tuple[tuple[ParticipationWord, bool], ...] = (("random", True), ("random", False), ("all", False))
"""Words of `participation`, and whether `everybody` stands beside them, which it does beside `random` alone."""
CATALOG = """
dpsql: 1
name: NAME
source: {kind: parquet, root: ., tables: {person: person.parquet, item: item.parquet}}
privacy: {lineage: l, cap: 9, unit: person.id, epsilon: 2}
tables:
  person: {role: dimension, key: id, private: true}
  item: {role: fact, foreign_keys: {id: {references: person, on_missing: drop}}, max_ids: CAP, columns: {
    kind: {type: int, lower: 0, upper: 9, out_of_domain: drop},
    price: {type: int, lower: 0, upper: 50, measure: true}}}
collection: {participation: randomMORE}
views:
  kinds: {of: item, axes: [item.kind], measures: [count, item.price]}
"""


def star(name: str, people: int, rng: np.random.Generator) -> RespondentRows:
    """Rows of made-up people; those of many have low kinds and prices."""
    most = STARS[name]
    counts = np.arange(most + 1)
    chances = {
        "pizza": np.append(0, 0.75 ** counts[1:] / counts[1:]),
        "expenses": np.append(0.2, 0.8 * (1 / 3) * (2 / 3) ** (counts[1:] - 1)),
        "tweets": np.append(0, counts[1:] ** -1.7),
    }[name]
    rows = rng.choice(counts, people, p=chances / chances.sum())
    first = np.concatenate([[0], np.cumsum(rows)])
    many = np.log2(np.repeat(rows, rows))
    kinds = np.clip(np.rint(6 - many + 2 * rng.standard_normal(first[-1])), 0, 9)
    prices = np.clip(np.rint(20 - 3 * many + 10 * rng.standard_normal(first[-1])), 0, 50)
    return RespondentRows(first, kinds.astype(np.int64)[:, None], prices.astype(np.int64)[:, None])


class Collected(NamedTuple):
    """Everybody's tallies of one collection.

    Args:
        plan: the last one.
        collection: the counts of its reports.
        reports: of its round.
    """

    plan: Plan
    collection: CountedCollection
    reports: int


@cache
def survey(name: str, cap: int, more: str, catalog: str = CATALOG) -> Survey:
    """The questions of a catalog."""
    text = catalog.replace("NAME", name).replace("CAP", str(cap)).replace("MORE", more)
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "catalog.yaml"
        file.write_text(text)
        loaded = load_catalog(file)
    return survey_of(loaded, public_axis_maker(loaded))


def collected(design: CollectionDesign, people: RespondentRows, rng: np.random.Generator) -> Collected:
    """One collection, in two rounds where a first one asks for row counts."""
    plan = read_plan(first_plan(design))
    if asks_rows_alone(plan):
        early = rng.random(people.count) < plan.round_shares[0] / sum(plan.round_shares)
        rows = row_reports(simulate_tallies(plan, chosen(people, np.flatnonzero(early)), rng))
        plan = read_plan(second_plan(design, plan, rows))
        people = chosen(people, np.flatnonzero(~early))
    return Collected(plan, simulate_tallies(plan, people, rng), people.count)


class Answer(NamedTuple):
    """A total: whether its interval covers the truth, its residual in errors downwards, its noise, the sentence."""

    covered: bool
    residual: float
    noise: float
    unasked: bool


def released(asked: Survey, found: Collected) -> ReleaseBuilder:
    """The release of a collection."""
    manifest = CollectionManifest(1, found.reports, found.reports, {})
    return release_content(asked, found.collection, manifest, "0" * 32)


@contextmanager
def answered(content: ReleaseBuilder, columns: str) -> Iterator[Result]:
    """Columns of the fact, answered by a release."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "local.dpsql"
        write_release_file(path, content, None)
        with dpsql.connect(path) as connection:
            yield connection.session.query(f"SELECT {columns} FROM item")


def answers(content: ReleaseBuilder, exact: tuple[float, ...], within: tuple[float, ...]) -> Iterator[Answer]:
    """Count, sum, average and share of a release.

    Args:
        content: of the release.
        exact: those of all rows.
        within: those of the rows that the collection counts.
    """
    with answered(content, f"COUNT(*), SUM(price), AVG(price), {SHARE}") as result:
        (low,), (high,) = result.interval_rows(0.95)
        (noises,) = result.noise_rows
        unasked = any("were not asked about" in flag for flag in result.flags)
        for value, noise, below, above, true, counted in zip(
            result.rows[0], noises, low, high, exact, within, strict=True
        ):
            covered, error = below <= true and (above is None or true <= above), (float(value) - below) / 1.96
            yield Answer(covered, (float(value) - counted) / max(error, 1e-9), noise, unasked)


def totals(people: RespondentRows, most: int | None = None) -> tuple[float, ...]:
    """Rows, their sum, average and share; of a person at most so many, which are drawn."""
    rows = np.diff(people.first).astype(float)
    share = np.ones_like(rows) if most is None else np.minimum(rows, most) / np.maximum(rows, 1)
    owner = np.repeat(np.arange(people.count), np.diff(people.first))
    count, total, some = (
        float(share[owner] @ x) for x in (np.ones(len(owner)), people.measures[:, 0], people.leaves[:, 0] < 4)
    )
    return count, total, total / count, some / count


def cells(collections: int) -> dict[tuple[str, ...], list[Answer]]:
    """Answers of the whole grid, by star, way to collect, words of `participation`, and who reports."""
    found: dict[tuple[str, ...], list[Answer]] = defaultdict(list)
    for (name, cap), (way, more) in itertools.product(STARS.items(), WAYS.items()):
        for part, run in itertools.product(("half", "all"), range(collections)):
            rng = np.random.default_rng([run, cap, len(way), len(part), 41])
            everybody = star(name, PEOPLE, rng)
            few = rng.permutation(PEOPLE)[: PEOPLE // 2] if part == "half" else np.arange(PEOPLE)
            people, asked = chosen(everybody, np.sort(few)), survey(name, cap, more)
            sent = collected(design_of(asked, people.count, ""), people, rng)
            content = released(asked, sent)
            assert content.local is not None
            most = None if way == "bits" else sent.plan.tau
            for word, known in WORDS:
                local = replace(content.local, participation=word, everybody=PEOPLE if known else None)
                about = everybody if known else people
                cell = (name, way, f"{word}{', declared' * known}", f"{part} report")
                found[cell] += answers(replace(content, local=local), totals(about), totals(about, most))
    return found


def grid(figures: Figures, collections: int) -> None:
    """Coverage of totals in the whole grid: each cell as a line, promises by star, by way and by who reports."""
    found = cells(collections)
    for cell, seen in found.items():
        covered, near, residual = shares(seen[::4] + seen[1::4])
        print(f"  {'; '.join(cell)}: {covered:.3f}, {near:.3f} within, residual {residual:.2f}", flush=True)
    for kind in dict.fromkeys(word for cell in found for word in cell):
        seen = [answer for cell, answers_of in found.items() if kind in cell for answer in answers_of]
        covered, near, _ = shares(seen[::4] + seen[1::4])
        figures.at_least("totals of facts, intervals that cover", covered, LOW, kind)
        figures.within("totals of facts, within 1.96 standard errors", near, LOW, HIGH, kind)
        for name, position in (("averages", 2), ("shares", 3)):
            figures.at_least(
                f"{name} of facts, intervals that cover", shares(seen[position::4])[0], LOW, kind
            )
    without = sum(answer.noise <= 0 for seen in found.values() for answer in seen)
    figures.at_most(f"answers about facts without error, of {sum(map(len, found.values()))}", without, 0)


def shares(seen: Sequence[Answer]) -> tuple[float, float, float]:
    """Intervals that cover, answers within 1.96 standard errors, and the root mean square of residuals."""
    return (
        float(np.mean([answer.covered for answer in seen])),
        float(np.mean([abs(answer.residual) <= 1.96 for answer in seen])),
        float(np.sqrt(np.mean([answer.residual**2 for answer in seen]))),
    )


def unasked(figures: Figures, collections: int) -> None:
    """Answers of catalogs whose `max_ids` cuts: outside of their interval, or without the sentence."""
    seen: list[Answer] = []
    for (name, cap), (way, more), run in itertools.product(STARS.items(), WAYS.items(), range(collections)):
        rng = np.random.default_rng([run, cap, len(way), 42])
        people = star(name, PEOPLE, rng)
        asked = survey(name, max(cap // 8, 3), f"{more}, everybody: {PEOPLE}")
        sent = collected(design_of(asked, people.count, ""), people, rng)
        # averages and shares are of `max_ids` rows a person, by the contract
        seen += [*answers(released(asked, sent), totals(people), totals(people))][:2]
    outside = sum(not answer.covered and not answer.unasked for answer in seen)
    figures.at_most(f"totals outside of their interval and without the sentence, of {len(seen)}", outside, 0)
    covered = float(np.mean([answer.covered for answer in seen]))
    figures.at_least("totals under max_ids below the largest, intervals that cover", covered, LOW)
    figures.at_most("the same without the sentence", sum(not answer.unasked for answer in seen), 0)


AXES = {"kind": 10, "hour": 12, "size": 5}
"""Leaves of the three axes on which boxes are asked; one of each pizza's kind, hour and size."""
EPSILONS, CONDITIONS, ORDERS, BOXES = (1, 2, 4), (1, 2, 3), 21_350, 40
BOX_CATALOG = """
dpsql: 1
name: NAME
source: {kind: parquet, root: ., tables: {person: person.parquet, item: item.parquet}}
privacy: {lineage: l, cap: 9, unit: person.id, epsilon: CAP}
tables:
  person: {role: dimension, key: id, private: true}
  item: {role: fact, foreign_keys: {id: {references: person, on_missing: drop}}, max_ids: 28, columns: {
    kind: {type: int, lower: 0, upper: 9, out_of_domain: drop},
    hour: {type: int, lower: 0, upper: 11, out_of_domain: drop},
    size: {type: int, lower: 0, upper: 4, out_of_domain: drop}}}
collection: {participation: allMORE}
views:
  items: {of: item, axes: [item.kind, item.hour, item.size], measures: [count]}
"""


def orders(rng: np.random.Generator) -> RespondentRows:
    """Orders of a pizza shop: those of many rows are of low kinds and late hours."""
    counts = np.arange(1, STARS["pizza"] + 1)
    chances = 0.75**counts / counts
    rows = rng.choice(counts, ORDERS, p=chances / chances.sum())
    first = np.concatenate([[0], np.cumsum(rows)])
    many, noise = np.log2(np.repeat(rows, rows)), rng.standard_normal((3, first[-1]))
    values = (4.5 - many / 2 + 2 * noise[0], 6 + many / 4 + 3 * noise[1], 2 + noise[2])
    leaves = [np.clip(np.rint(at), 0, size - 1) for at, size in zip(values, AXES.values(), strict=True)]
    none = np.zeros((first[-1], 0), np.int64)
    return RespondentRows(first, np.stack(leaves, axis=1).astype(np.int64), none)


def asked_boxes(conditions: int, rng: np.random.Generator) -> list[dict[str, tuple[int, int]]]:
    """Random ranges of so many of the axes."""
    names, boxes = list(AXES), []
    for _ in range(BOXES):
        chosen_axes = [names[at] for at in rng.permutation(len(names))[:conditions]]
        ends = {name: sorted(rng.choice(AXES[name] + 1, 2, replace=False)) for name in chosen_axes}
        boxes.append({name: (int(low), int(high) - 1) for name, (low, high) in ends.items()})
    return boxes


def box_shares(people: RespondentRows, boxes: Sequence[dict[str, tuple[int, int]]]) -> np.ndarray:
    """Exact shares of all rows in boxes."""
    columns = dict(zip(AXES, people.leaves.T, strict=True))
    inside = [[(low <= columns[n]) & (columns[n] <= high) for n, (low, high) in box.items()] for box in boxes]
    return np.array([np.logical_and.reduce(conditions).mean() for conditions in inside])


def box_errors(
    content: ReleaseBuilder, people: RespondentRows, boxes: Sequence[dict[str, tuple[int, int]]], scaled: bool
) -> float:
    """Mean squared error of the counts of boxes, by the squared number of rows; their total may be known exactly."""
    with answered(content, f"COUNT(*), {counts_of(boxes)}") as result:
        (row,) = result.rows
    found = np.array(row[1:], float) / (float(row[0]) if scaled else len(people.leaves))
    return float(np.mean((found - box_shares(people, boxes)) ** 2))


def counts_of(boxes: Sequence[dict[str, tuple[int, int]]]) -> str:
    """The columns that count boxes."""
    inside = [" AND ".join(f"{n} BETWEEN {a} AND {b}" for n, (a, b) in box.items()) for box in boxes]
    return ", ".join(f"COUNT(*) FILTER (WHERE {condition})" for condition in inside)


def forecasts(figures: Figures, collections: int) -> None:
    """Errors of ranges before anyone reports, by those that the intervals print downwards."""
    ranges = [{"kind": (low, high)} for low, high in itertools.combinations_with_replacement(range(10), 2)]
    ratios: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    grid = itertools.product(STARS.items(), WAYS.items(), (PEOPLE // 2, PEOPLE), range(collections))
    for (name, cap), (way, more), respondents, run in grid:
        rng = np.random.default_rng([run, cap, len(way), respondents, 46])
        people, asked = star(name, respondents, rng), survey(name, cap, more)
        design = design_of(asked, respondents, "")
        sent = collected(design, people, rng)
        with answered(released(asked, sent), counts_of(ranges)) as result:
            below = np.array(result.rows, float) - np.array(result.interval_rows(0.95)[0])
        expected = predict(sent.plan, respondents, design.row_guess)[0].error
        printed = np.sqrt(np.mean(below**2)) / 1.96 / respondents
        ratios[name, way, respondents].append(expected / printed)
    for (name, way, respondents), seen in ratios.items():
        figures.table(
            f"forecast over printed, {name}, {way}, {respondents}", float(np.exp(np.mean(np.log(seen))))
        )
    near = [0.5 <= ratio <= 2 for seen in ratios.values() for ratio in seen]
    figures.at_least(f"forecasts within 2 of the printed error, of {len(near)}", float(np.mean(near)), 0.8)


def default_boxes(figures: Figures, collections: int) -> None:
    """Boxes of the default collection over those of one row a person and a known total."""
    errors: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for epsilon, run in itertools.product(EPSILONS, range(collections)):
        rng = np.random.default_rng([run, epsilon, 43])
        people = orders(rng)
        boxes = {conditions: asked_boxes(conditions, rng) for conditions in CONDITIONS}
        for way, more in (("default", ""), ("known", ", tau: 1")):
            asked = survey(f"orders{epsilon}", epsilon, more, BOX_CATALOG)
            content = released(asked, collected(design_of(asked, people.count, ""), people, rng))
            for conditions, chosen_boxes in boxes.items():
                error = box_errors(content, people, chosen_boxes, way == "known")
                errors[way, epsilon, conditions].append(error)
    for epsilon, conditions in itertools.product(EPSILONS, CONDITIONS):
        default, known = (float(np.mean(errors[way, epsilon, conditions])) for way in ("default", "known"))
        name = "default collection, squared error of boxes over a known total's"
        figures.at_most(name, default / known, 1.5, f"epsilon {epsilon}, {conditions} conditions")


def measure(figures: Figures, collections: int = 40) -> None:
    """Make so many collections of each cell of the grid, and fewer of the others."""
    forecasts(figures, max(collections // 10, 1))
    default_boxes(figures, max(collections // 2, 1))
    unasked(figures, max(collections // 4, 1))
    grid(figures, collections)


if __name__ == "__main__":
    main(measure)
