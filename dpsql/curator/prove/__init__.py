"""Exact privacy loss of a catalog's releases between neighbours aimed at its bounds, over the charge.

Every place where exact integers meet noise is watched (`loss`). Two neighbours, made up for the catalog (`madeup`), are
published whole, in a folder that is gone afterwards, with a ledger of its own. A loss above the claim proves
that the claim is false. One below it proves nothing beyond its pair: proofs are in docs/privacy.md.

**Privacy**: made-up rows and public tables; the curator's ledger is not opened and nothing is charged to it.
**Source**: docs/audit.md, "2. Where neighbours aim".

The witness is a file from which another program adds up the losses and redoes the estimates: one JSON value a line,
documented field by field in clients/verify/README.md. `clients/verify` is such a program, in another language and by
other formulas: least squares by normal equations in the place of recursions along trees.

**Privacy**: integers of made-up rows, and noise of test entropy.
**Source**: docs/audit.md, "2. The file".
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from importlib.metadata import version
from itertools import cycle
from math import inf, prod
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from dpsql.budget import NEIGHBOURS
from dpsql.budget.curve import SLACK
from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.private_columns import private_columns, reported_columns, with_keys
from dpsql.central.bounding import DrawnRelease
from dpsql.central.selection import listed_keys
from dpsql.curator.audit import as_bought
from dpsql.curator.audit.contents import Check
from dpsql.curator.prove import madeup
from dpsql.curator.prove.layouts import LAYOUTS, SourceLayout
from dpsql.curator.prove.loss import Distinguished, IntArray, Meeting
from dpsql.errors import CatalogError, InterfaceError, MachineFault
from dpsql.matrices.strategy import PlacedTree, Strategy, axis_budgets, tree_of
from dpsql.mechanisms.axis.dense import ZERO_SUM
from dpsql.mechanisms.designs.measurement import Measurement
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import DrawnNumbers, drawn_numbers
from dpsql.mechanisms.designs.residual import RESIDUAL
from dpsql.mechanisms.distribution import GAUSSIAN, NoisyRows, as_laplace
from dpsql.progress import Progress, Stage, silent
from dpsql.release import Release, open_release
from dpsql.release.structure import written_chances

Record = dict[str, Any]

FORMAT = 1
EXACT = 1 << 53
"""Integers up to here are numbers of JSON; larger ones are decimal strings, as many readers have only doubles."""

METHODS: tuple[tuple[Measurement, str], ...] = ((PRODUCT, "product"), (RESIDUAL, "residual"))
"""Measurements whose estimates a witness allows to redo, and what the file calls them."""


def write_pair(file: TextIO, name: str, left: madeup.NeighbourSide, pair: madeup.MeasuredPair) -> None:
    """A pair with all its draws; of a central release also its strategies, its statistics and their estimates.

    Args:
        file: an open witness.
        name: of the pair.
        left: the side with the one unit more, published.
        pair: as measured.
    """
    write_record(file, _pair_record(name, pair))
    for number, (meeting, right, loss) in enumerate(
        zip(pair.draws.meetings, pair.draws.right, pair.draws.losses, strict=True)
    ):
        # in the currency of the draw's own law: epsilon of Laplace noise, mu^2 of Gaussian noise
        exact = str(loss.mu2 if loss.epsilon is None else loss.epsilon)
        write_record(file, _draw_record(number, meeting, right) | {"loss": exact})
    if pair.drawn is not None:
        with closing(open_release(left.target, insecure=True)) as release:
            for record in _release_records(left.catalog, pair.drawn, pair.draws.meetings, release):
                write_record(file, record)


def _pair_record(name: str, pair: madeup.MeasuredPair) -> Record:
    loss = pair.loss
    pure = sum((draw.epsilon for draw in loss.draws if draw.epsilon is not None), Fraction(0))
    gaussian = sum((draw.mu2 for draw in loss.draws if draw.epsilon is None), Fraction(0))
    fields: Record = {}
    if loss.delta:
        rounds = [
            {
                "column": column, **dict(zip(("mu2", "delta", "room"), map(str, step.price), strict=True)),
                "table": written_chances(step.table), "moved": [[key, *sides] for key, sides in people.items()],
            }
            for column, step, people in pair.draws.moved
        ]  # fmt: skip
        fields = {"key_delta": str(loss.delta), "key_loss": str(loss.chance), "rounds": rounds}
    return {
        "pair": name, "currency": loss.currency, "draws": len(pair.draws.meetings),
        "lines": [[purpose, str(amount)] for purpose, amount in loss.lines], "claimed": str(loss.claimed),
        "epsilon": str(pure), "mu2": str(gaussian), "loss_over_claim": loss.share, **fields,
    }  # fmt: skip


def _draw_record(number: int, meeting: Meeting, right: IntArray) -> Record:
    law, difference, noisy = meeting.law, meeting.exact - right, meeting.noisy.ravel()
    moved = np.flatnonzero(difference)
    if law.sigma2 is None:
        noise: Record = {"law": "laplace", "denominator": _number(law.denominator), "units": _runs(law.units)}
        if law.bounds:
            noise["bounds"] = [_number(bound) for bound in law.bounds]
        units_of_ones = sum(law.units.tolist())  # spend of rows that all move by one
        if law.tree is not None:
            levels = [_number(rate) for rate in law.tree.rates]
            noise |= {"arities": list(law.tree.arities), "rates": levels, "leaves": law.leaves}
            # every leaf moves a node of each level
            units_of_ones = len(right) // len(law.bounds) * sum(law.tree.rates)
        ones = Fraction(units_of_ones, law.denominator * min(law.bounds, default=1))
    else:
        noise = {"law": "gaussian", "sigma2": str(law.sigma2)}
        ones = Fraction(len(right)) / (law.sigma2 - SLACK)
    return {
        "draw": number, "where": law.where, **noise, "loss_of_ones": str(ones),
        "left": _numbers(meeting.exact), "noise": _numbers(noisy - meeting.exact),
        "noisy": _numbers(noisy),
        "right": [[int(row), _number(int(right[row]))] for row in moved], "shift": _number(int(difference.sum())),
    }  # fmt: skip


def _release_records(
    catalog: Catalog, drawn: DrawnRelease, meetings: Sequence[Meeting], release: Release
) -> Iterator[Record]:
    plan = drawn.plan
    methods = {} if reported_columns(catalog) else _methods(drawn)
    axes = {axis for i in methods for axis in plan.statistics[i].axes}
    paths = sorted({axis.axis.path for axis in plan.axes if axis.axis.missing_leaf is not None})
    for number in sorted(axes):
        record, axis = _axis_record(number, plan.axes[number].strategy), plan.axes[number].axis
        if axis.missing_leaf is not None:  # of rows without a partner in the dimension
            record |= {"dimension": paths.index(axis.path), "missing": axis.missing_leaf}
        yield record
    families = {i: number for number, members in enumerate(plan.families) for i in members}
    places = _Places(meetings)
    for i, (statistic, view) in enumerate(zip(plan.statistics, drawn.views, strict=True)):
        record = {
            "statistic": i, "family": families[i], "view": statistic.view, "of": statistic.of,
            "measure": statistic.measure.name, "axes": list(statistic.axes), "method": methods.get(i),
        }  # fmt: skip
        if i in methods:
            record |= _terms_record(drawn, i) | places.of(drawn, i, view)
            # Leaf estimates of a released statistic, in units of 2^-20
            trees = [release.tree(axis) for axis in release.statistics[i].axes]
            nodes = np.asarray(release.whole(f"node_combination_{i}")["estimate"], np.int64)
            shape = tuple(tree.size for tree in trees)
            assert nodes.size == prod(shape)
            record |= {
                "step": release.statistics[i].step,
                "leaves": _numbers(nodes.reshape(shape)[np.ix_(*(tree.leaves for tree in trees))]),
            }
        yield record


def _methods(drawn: DrawnRelease) -> dict[int, str]:
    """Estimators of each statistic whose family a witness can redo."""
    plan = drawn.plan
    methods: dict[int, str] = {}
    for members in plan.families:
        statistics = [plan.statistics[i] for i in members]
        names = [name for s in statistics for kind, name in METHODS if s.measurement is kind]
        listed = len(names) == len(statistics) and len(set(names)) == 1
        # rows that can be written down
        if listed and all(a.entries() is not None for s in statistics for a in plan.strategies(s)):
            methods |= dict.fromkeys(members, names[0])
    return methods


def _axis_record(axis: int, strategy: Strategy) -> Record:
    rows = strategy.entries()
    assert rows is not None
    tree, levels = axis_budgets([strategy])[0].tree, {}
    if tree is not None:
        weights = strategy.solver.columns()["weight"].tolist()
        levels = {"levels": {"arities": tree.arities, "shares": tree.shares, "weights": weights}}
    return {
        "axis": axis, "leaves": strategy.leaves, "start": rows.start.tolist(), "stop": rows.stop.tolist(),
        "offset": rows.offset.tolist(), "entry": rows.entry.tolist(), "budget": strategy.budget.tolist(),
        "total": strategy.total, "zero_sum": strategy.kind == ZERO_SUM,
        **levels,
    }  # fmt: skip


def _terms_record(drawn: DrawnRelease, i: int) -> Record:
    """Budgets of a statistic, and what its estimates are multiplied by and moved by."""
    statistic, view = drawn.plan.statistics[i], drawn.views[i]
    (line,) = drawn.plan.lines_of(drawn.plan.draw_of(i))
    corrected = drawn.corrected.get(i)
    weighed_together = corrected is not None and statistic.law is GAUSSIAN
    stated = {"variance": view.variance_at_unit_budget} if _tree(drawn, i) is not None else {}
    return stated | {
        "law": "laplace" if statistic.law.norm == 1 else "gaussian",
        "purpose": line[0], "charge": str(line[1]),
        "spend": None if weighed_together else str(statistic.spend), "sensitivity": _number(view.sensitivity),  # type: ignore[attr-defined]
        "factor": statistic.factor,
        "added": None if corrected is None else corrected.leaves.ravel().tolist(),
    }  # fmt: skip


def _tree(drawn: DrawnRelease, i: int) -> PlacedTree | None:
    """Of a statistic whose leaves were drawn together."""
    return tree_of(axis_budgets(drawn.plan.strategies(drawn.plan.statistics[i])))


class _Places:
    """Positions at which the noisy integers of statistics were drawn.

    Args:
        meetings: all draws.
    """

    def __init__(self, meetings: Sequence[Meeting]) -> None:
        self._free: dict[bytes, list[int]] = {}
        self._laplace: dict[tuple[int, ...], int] = {}  # by the numbers of the draw
        for number, meeting in enumerate(meetings):
            self._free.setdefault(meeting.noisy.tobytes(), []).append(number)

    def of(self, drawn: DrawnRelease, i: int, view: NoisyRows) -> Record:
        """A statistic's draws: one of Gaussian noise for each budget; of Laplace noise those of the numbers that it is
        the sum of, with their places among the numbers of each."""
        law = as_laplace(drawn.plan.statistics[i].law)
        if law is None:
            return {
                "draws": [self._take(view.value[view.budget == share]) for share in np.unique(view.budget)]
            }
        members = drawn.plan.draw_of(i)
        numbers = drawn_numbers([drawn.plan.statistics[member].law for member in members])
        place = members.index(i)
        terms = [place, *([numbers.added[place]] if place in numbers.added else [])]
        draws = [next(draw for draw in numbers.draws if term in draw) for term in terms]
        record: Record = {
            "draws": [self._laplace_draw(drawn, members, numbers, draw) for draw in draws],
            "numbers": [draw.index(term) for draw, term in zip(draws, terms, strict=True)],
        }
        return record | ({"widest": _number(law.numbers * law.widest)} if numbers.added else {})

    def _laplace_draw(
        self, drawn: DrawnRelease, members: Sequence[int], numbers: DrawnNumbers, draw: Sequence[int]
    ) -> int:
        """Draw of some numbers; a number is a statistic, or its difference from another one."""
        key = tuple(members[place] for place in draw)
        if key not in self._laplace:
            views, tree = [drawn.views[member].value for member in members], _tree(drawn, members[0])
            values = [views[p] - views[numbers.added[p]] if p in numbers.added else views[p] for p in draw]
            if tree is not None:  # trees are drawn one after the other
                values = [np.moveaxis(value, tree.axis, -1) for value in values]
            self._laplace[key] = self._take(np.concatenate([value.ravel() for value in values]))
        return self._laplace[key]

    def _take(self, noisy: IntArray) -> int:
        return self._free[np.ascontiguousarray(noisy, np.int64).tobytes()].pop(0)


def _runs(values: IntArray) -> list[list[Any]]:
    """Equal neighbours together: (value, how often)."""
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]]) if values.size else np.zeros(0, np.int64)
    lengths = np.diff(np.r_[starts, values.size])
    return [[_number(int(values[at])), int(times)] for at, times in zip(starts, lengths, strict=True)]


def _numbers(values: IntArray) -> list[int | str]:
    return [_number(value) for value in values.ravel().tolist()]


def _number(value: int) -> int | str:
    return value if abs(value) <= EXACT else str(value)


def write_record(file: TextIO, record: Mapping[str, Any]) -> None:
    """One line of a witness; the record of a pair that no noise covers has no loss, and says what is `apart`."""
    file.write(json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n")


__all__ = ["Proof", "prove", "prove_release"]


class PairLoss(NamedTuple):
    """One pair of neighbours.

    Args:
        pair: the manner of the unit that comes and goes.
        source: how the rows were stored.
        share: its loss over what the ledger is charged; infinite where something but noisy numbers differs.
        draws: how many times noise was drawn.
        apart: what differs, where no noise covers it.
        key_loss: the delta of private keys, over what is charged for them.
    """

    pair: str
    source: str
    share: float
    draws: int
    apart: str = ""
    key_loss: float = 0.0

    @property
    def words(self) -> str:
        """The pair in a line."""
        keys = f", keys {self.key_loss:.4f} of delta" if self.key_loss else ""
        return f"{self.pair} ({self.source}) {self.apart or format(self.share, '.4f')}{keys}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a pair that no noise covers has no loss, and says what differs."""
        share = self.share if self.share < inf else None
        plain = {"pair": self.pair, "source": self.source, "loss_over_claim": share, "draws": self.draws}
        keys = {"key_loss_over_delta": self.key_loss} if self.key_loss else {}
        return plain | keys | ({"apart": self.apart} if self.apart else {})


@dataclass(frozen=True)
class Proof:
    """Proof of measured losses, with version and time.

    Args:
        version: of dpsql.
        measured_on: ISO date, UTC.
        neighbours: the catalog's word.
        pairs: in order.
    """

    version: str
    measured_on: str
    neighbours: str
    pairs: tuple[PairLoss, ...]

    @property
    def worst(self) -> PairLoss:
        """The pair that loses most of its claim."""
        return max(self.pairs, key=lambda pair: pair.share)

    @property
    def held(self) -> bool:
        """True if no pair passes the claim."""
        return self.worst.share <= 1 and max(pair.key_loss for pair in self.pairs) <= 1

    @property
    def check(self) -> Check:
        """As a line of an audit."""
        return Check("no pair of made-up neighbours exceeds the claimed loss", self.held, self.words)

    @property
    def words(self) -> str:
        pairs = ", ".join(pair_loss.words for pair_loss in self.pairs)
        return f"exact loss over claim, {self.neighbours} neighbours: {pairs}"

    def to_json(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "measured_on": self.measured_on,
            "neighbours": self.neighbours,
            "worst_loss_over_claim": self.worst.share if self.worst.share < inf else None,
            "held": self.held,
            "pairs": [pair.to_json() for pair in self.pairs],
        }  # fmt: skip


def prove(
    catalog: Catalog, *, seed: int = 0, progress: Progress = silent, witness: Path | None = None
) -> Proof:
    """Measure the exact loss of a catalog's releases on neighbours that aim at its bounds.

    Args:
        catalog: with a source, whose public tables are read.
        seed: of what is made up, and of noise.
        progress: told each pair.
        witness: a file to write what another program needs to check the proof (`prove.witness`).

    Raises:
        CatalogError: it has no source to take public tables from, or people report for themselves.
        SourceError: a public table cannot be read.
    """
    if catalog.collection is not None:
        raise CatalogError(
            "people report for themselves here: nothing is published from rows, so there is no loss of rows",
            hint="docs/privacy/local.md enumerates what one report reveals",
        )
    synthetic, pairs = madeup.made_up(_with_listed(catalog), seed), []
    with tempfile.TemporaryDirectory(prefix="dpsql-prove-") as folder, _opened(witness) as file:
        if file is not None:
            privacy = catalog.privacy
            header = {
                "witness": FORMAT, "dpsql": version("dpsql"), "catalog": catalog.name, "neighbours": privacy.neighbours,
                "moves": NEIGHBOURS[privacy.neighbours].moves,
            }  # fmt: skip
            write_record(file, header)
        layouts = cycle([layout for layout in LAYOUTS if layout.fits(catalog)])
        manners = synthetic.manners
        for done, (manner, layout) in enumerate(zip(manners, layouts, strict=False), 1):
            progress(Stage("measuring the exact loss of", manner.name, done=done, total=len(manners)))
            pairs.append(_measured(synthetic, manner, layout, Path(folder) / manner.name, file))
    today = datetime.now(UTC).date().isoformat()
    return Proof(version("dpsql"), today, catalog.privacy.neighbours, tuple(pairs))


def _with_listed(catalog: Catalog) -> Catalog:
    """The catalog with the keys that earlier releases have found as public values: made-up ledgers know no release."""
    if not private_columns(catalog):
        return catalog
    listed, tables = listed_keys(catalog), dict(catalog.tables)
    for column in private_columns(catalog):
        always = tuple(map(str, listed[column.name].keys))
        keys = column.keys.model_copy(update={"known": None, "always": always})
        tables[column.table] = with_keys(tables[column.table], {column.column: keys})
    return catalog.model_copy(update={"tables": tables})


def prove_release(
    path: Path, catalog: Catalog | None, progress: Progress = silent, witness: Path | None = None
) -> Proof:
    """`prove` for the catalog that a release was made from.

    Args:
        path: the release file, or a stream directory.
        catalog: the curator's, which names public tables; what a release holds does not.
        progress, witness: as of `prove`.

    Raises:
        InterfaceError: there is no catalog, or another one than the release was made from.
        ReleaseError: the release cannot be opened; further errors as of `prove`.
    """
    if catalog is None:
        raise InterfaceError("made-up rows need the curator's catalog", hint="pass --catalog FILE")
    with closing(open_release(path, insecure=True)) as release:
        made_from = as_bought(catalog, release)
        if spec_hash(made_from) != release.meta.spec_hash:
            hint = "name the catalog that it was made from"
            raise InterfaceError(f"{path.name} was made from a different catalog", hint=hint)
    return prove(made_from, progress=progress, witness=witness)


@contextmanager
def _opened(witness: Path | None) -> Iterator[TextIO | None]:
    """A witness that is being written; None where nobody wants one.

    Raises:
        MachineFault: the file cannot be written.
    """
    if witness is None:
        yield None
        return
    try:
        with witness.open("w", encoding="utf-8") as file:
            yield file
    except OSError as error:
        raise MachineFault(f"cannot write {witness}: {error.strerror}") from error


def _measured(
    synthetic: madeup.MadeUpStar,
    manner: madeup.Manner,
    layout: SourceLayout,
    folder: Path,
    witness: TextIO | None,
) -> PairLoss:
    """One unit more; or in the place of another one, which is unlike it."""
    stream, replaced = synthetic.catalog.stream, NEIGHBOURS[synthetic.catalog.privacy.neighbours].moves > 1
    batches = synthetic.batches[: (stream.max_batches or len(synthetic.batches)) if stream else 0]
    victim = synthetic.rows_of(madeup.VICTIM, manner, batches)
    rival = [synthetic.rows_of(madeup.RIVAL, madeup.CHEAP, batches)] if replaced else []
    left = synthetic.side(folder / "left", layout, victim)
    right = synthetic.side(folder / "right", layout, *rival)
    try:
        pair = madeup.measure_pair(left, right, synthetic.seed)
    except Distinguished as error:
        if witness is not None:
            write_record(witness, {"pair": manner.name, "apart": error.reason})
        return PairLoss(manner.name, layout.name, inf, 0, error.reason)
    if witness is not None:
        write_pair(witness, manner.name, left, pair)
    loss = pair.loss
    return PairLoss(manner.name, layout.name, loss.share, len(loss.draws), key_loss=loss.delta_share)
