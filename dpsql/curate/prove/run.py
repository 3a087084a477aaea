"""What a catalog's releases cost at the worst of some neighbours that aim at its bounds, over what they are charged.

Each pair is published whole, on both sides, in a folder that is gone afterwards, with a ledger of its own. A loss
above the claim proves that the claim is false. One below it proves nothing beyond its pair: proofs are in
docs/privacy.md.

**Privacy**: made-up rows and public tables; the curator's ledger is not opened and nothing is charged to it.
**Source**: docs/privacy/loss.md, "2. Where neighbours aim".
"""

from __future__ import annotations

import tempfile
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.budget import NEIGHBOURS
from dpsql.curate.audit.report import Check
from dpsql.curate.audit.run import as_bought
from dpsql.curate.prove.loss import Distinguished
from dpsql.curate.prove.madeup import CHEAP, MANNERS, RIVAL, VICTIM, MadeUp, Manner, made_up
from dpsql.curate.prove.sides import measure_sides
from dpsql.errors import CatalogError, InterfaceError
from dpsql.progress import Progress, Stage, silent
from dpsql.release import open_release
from dpsql.star import Catalog, spec_hash


class PairLoss(NamedTuple):
    """One pair of neighbours.

    Args:
        pair: the manner of the unit that comes and goes.
        share: its loss over what the ledger is charged; infinite where something but noisy numbers differs.
        draws: how many times noise was drawn.
        apart: what differs, where no noise covers it.
    """

    pair: str
    share: float
    draws: int
    apart: str = ""


@dataclass(frozen=True)
class Proof:
    """What was measured, by which version, when.

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
        """Whether no pair passes the claim."""
        return self.worst.share <= 1

    @property
    def check(self) -> Check:
        """As a line of an audit."""
        return Check("no made-up neighbours lose more than is claimed", self.held, self.words)

    @property
    def words(self) -> str:
        """One line for people."""
        pairs = ", ".join(f"{each.pair} {each.apart or format(each.share, '.4f')}" for each in self.pairs)
        return f"exact loss over claim, {self.neighbours} neighbours: {pairs}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "version": self.version,
            "measured_on": self.measured_on,
            "neighbours": self.neighbours,
            "worst_loss_over_claim": self.worst.share if self.worst.share < inf else None,
            "held": self.held,
            "pairs": [
                {"pair": each.pair, "loss_over_claim": each.share if each.share < inf else None, "draws": each.draws}
                | ({"apart": each.apart} if each.apart else {})
                for each in self.pairs
            ],
        }  # fmt: skip


def prove(catalog: Catalog, *, seed: int = 0, progress: Progress = silent) -> Proof:
    """Measure the exact loss of a catalog's releases on neighbours that aim at its bounds.

    Args:
        catalog: with a source, whose public tables are read.
        seed: of what is made up, and of noise.
        progress: told each pair.

    Raises:
        CatalogError: it has no source to take public tables from, or people report for themselves.
        SourceError: a public table cannot be read.
    """
    if catalog.collection is not None:
        raise CatalogError(
            "people report for themselves here: nothing is published from rows, so there is no loss of rows",
            hint="docs/privacy/local.md enumerates what one report tells",
        )
    made, pairs = made_up(catalog, seed), []
    with tempfile.TemporaryDirectory(prefix="dpsql-prove-") as folder:
        for done, manner in enumerate(MANNERS, 1):
            progress(Stage("measuring the exact loss of", manner.name, done=done, total=len(MANNERS)))
            pairs.append(_measured(made, manner, Path(folder) / manner.name, seed))
    today = datetime.now(UTC).date().isoformat()
    return Proof(version("dpsql"), today, catalog.privacy.neighbours, tuple(pairs))


def prove_release(path: Path, catalog: Catalog | None, progress: Progress = silent) -> Proof:
    """`prove` for the catalog that a release was made from.

    Args:
        path: the release file, or a stream directory.
        catalog: the curator's, which names public tables; what a release holds does not.
        progress: as of `prove`.

    Raises:
        InterfaceError: there is no catalog, or another one than the release was made from.
        ReleaseError: the release cannot be opened; further errors as of `prove`.
    """
    if catalog is None:
        raise InterfaceError(
            "rows are made up for the curator's catalog, and none is named", hint="write --catalog <file>"
        )
    with closing(open_release(path, insecure=True)) as release:
        made_from = as_bought(catalog, release)
        if spec_hash(made_from) != release.meta.spec_hash:
            raise InterfaceError(
                f"{path.name} was made from another catalog than this one",
                hint="name the one it was made from",
            )
    return prove(made_from, progress=progress)


def _measured(made: MadeUp, manner: Manner, folder: Path, seed: int) -> PairLoss:
    """One unit more; or in the place of another one, which is unlike it."""
    stream, replaced = made.catalog.stream, NEIGHBOURS[made.catalog.privacy.neighbours].moves > 1
    batches = made.batches[: (stream.max_batches or len(made.batches)) if stream else 0]
    victim = made.rows_of(VICTIM, manner, batches)
    rival = [made.rows_of(RIVAL, CHEAP, batches)] if replaced else []
    left, right = made.side(folder / "left", victim), made.side(folder / "right", *rival)
    try:
        loss = measure_sides(left, right, seed)
    except Distinguished as error:
        return PairLoss(manner.name, inf, 0, error.reason)
    return PairLoss(manner.name, loss.share, len(loss.draws))
