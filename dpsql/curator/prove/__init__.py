"""Exact privacy loss of a catalog's releases between neighbours aimed at its bounds, over the charge.

Every place where exact integers meet noise is watched (`loss`). Two neighbours, made up for the catalog (`madeup`), are
published whole, in a folder that is gone afterwards, with a ledger of its own. A loss above the claim proves
that the claim is false. One below it proves nothing beyond its pair: proofs are in docs/privacy.md.

**Privacy**: made-up rows and public tables; the curator's ledger is not opened and nothing is charged to it.
**Source**: docs/privacy/loss.md, "2. Where neighbours aim".
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import cycle
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from dpsql.budget import NEIGHBOURS
from dpsql.catalog import Catalog, spec_hash
from dpsql.catalog.private_columns import private_columns, with_keys
from dpsql.central.known_keys import listed_keys
from dpsql.curator.audit import as_bought
from dpsql.curator.audit.contents import Check
from dpsql.curator.prove.layouts import LAYOUTS, SourceLayout
from dpsql.curator.prove.loss import Distinguished
from dpsql.curator.prove.madeup import CHEAP, RIVAL, VICTIM, MadeUpStar, Manner, made_up, measure_pair
from dpsql.curator.prove.witness import write_header, write_pair, write_record
from dpsql.errors import CatalogError, InterfaceError, MachineFault
from dpsql.progress import Progress, Stage, silent
from dpsql.release import open_release

__all__ = ["Proof", "prove", "prove_release"]


class PairLoss(NamedTuple):
    """One pair of neighbours.

    Args:
        pair: the manner of the unit that comes and goes.
        source: how the rows were stored.
        share: its loss over what the ledger is charged; infinite where something but noisy numbers differs.
        draws: how many times noise was drawn.
        apart: what differs, where no noise covers it.
        new_keys: the chance that private keys of one side alone are shown, over the delta that is charged for it.
    """

    pair: str
    source: str
    share: float
    draws: int
    apart: str = ""
    new_keys: float = 0.0

    @property
    def words(self) -> str:
        """The pair in a line."""
        shown = f", new keys {self.new_keys:.4f} of delta" if self.new_keys else ""
        return f"{self.pair} ({self.source}) {self.apart or format(self.share, '.4f')}{shown}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; a pair that no noise covers has no loss, and says what differs."""
        share = self.share if self.share < inf else None
        plain = {"pair": self.pair, "source": self.source, "loss_over_claim": share, "draws": self.draws}
        keys = {"new_keys_over_delta": self.new_keys} if self.new_keys else {}
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
        return self.worst.share <= 1 and max(pair.new_keys for pair in self.pairs) <= 1

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
    synthetic, pairs = made_up(_with_listed(catalog), seed), []
    with tempfile.TemporaryDirectory(prefix="dpsql-prove-") as folder, _opened(witness) as file:
        if file is not None:
            write_header(file, catalog)
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
    synthetic: MadeUpStar, manner: Manner, layout: SourceLayout, folder: Path, witness: TextIO | None
) -> PairLoss:
    """One unit more; or in the place of another one, which is unlike it."""
    stream, replaced = synthetic.catalog.stream, NEIGHBOURS[synthetic.catalog.privacy.neighbours].moves > 1
    batches = synthetic.batches[: (stream.max_batches or len(synthetic.batches)) if stream else 0]
    victim = synthetic.rows_of(VICTIM, manner, batches)
    rival = [synthetic.rows_of(RIVAL, CHEAP, batches)] if replaced else []
    left = synthetic.side(folder / "left", layout, victim)
    right = synthetic.side(folder / "right", layout, *rival)
    try:
        pair = measure_pair(left, right, synthetic.seed)
    except Distinguished as error:
        if witness is not None:
            write_record(witness, {"pair": manner.name, "apart": error.reason})
        return PairLoss(manner.name, layout.name, inf, 0, error.reason)
    if witness is not None:
        write_pair(witness, manner.name, left, pair)
    loss = pair.loss
    return PairLoss(manner.name, layout.name, loss.share, len(loss.draws), new_keys=loss.delta_share)
