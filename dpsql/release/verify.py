"""Everything about a release file that can be checked without its curator: `dpsql verify`.

Opening checks structure alone, so that it costs the same for 2^24 node combinations as for a hundred. This reads all:
every byte for the signature, every tree, atom and variance model, and that each statistic has all of its node
combinations, once each. What the numbers follow from is the work of `dpsql audit`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.matrices.max_entropy import LINEAR, pair_number
from dpsql.matrices.reading import stored_as_pairs
from dpsql.release.read import Release, open_release, release_file
from dpsql.release.signature import Signer, claimed_signer
from dpsql.release.structure import refused


class Verified(NamedTuple):
    """A release that is whole.

    Args:
        path: the file; of a stream, its newest state's.
        release_id: its id.
        name: of its catalog.
        signer: who signed it, checked; None where it is not signed.
        numbers: node combinations that it holds.
    """

    path: Path
    release_id: str
    name: str
    signer: Signer | None
    numbers: int

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        return {
            "path": str(self.path),
            "release_id": self.release_id,
            "catalog": self.name,
            "signer": None if self.signer is None else self.signer.key,
            "node_combinations": self.numbers,
        }

    def summary(self) -> str:
        signed = (
            "it is not signed: its author is unknown"
            if self.signer is None
            else f"signed by {self.signer.key}, unchanged since"
        )
        return f"{self.path} is the release {self.release_id} of {self.name}, whole: {self.numbers} numbers\n{signed}"


def verify(path: Path, signers: Collection[str] | None) -> Verified:
    """Read a whole release and check it.

    Args:
        path: a release file, or a stream directory, whose newest state is read.
        signers: public keys of which one must have signed it; None takes anybody's signature, or none.

    Raises:
        ReleaseError: the first fault.
    """
    file = release_file(path)
    claimed = claimed_signer(file) if file.is_file() else None
    if signers is None and claimed is not None:
        signers = (claimed.key,)  # whoever signed it
    release = open_release(path, insecure=True, signers=signers)
    try:
        numbers = sum(_numbers(release))
        return Verified(file, release.meta.release_id, release.name, release.signer, numbers)
    finally:
        release.close()


def _numbers(release: Release) -> Iterator[int]:
    """Node combinations of each statistic, once all of it was read."""
    for axis in range(len(release.axes)):
        release.tree(axis)
        release.atoms(axis)
    for number, statistic in enumerate(release.statistics):
        listed = release.reading(number).listed
        sizes = [listed.get(i, release.tree(axis).size) for i, axis in enumerate(statistic.axes)]
        names = [f"n{i + 1}" for i in range(len(sizes))]
        place = " + ".join(
            ["0", *(f"{name}::HUGEINT * {prod(sizes[i + 1 :])}" for i, name in enumerate(names))]
        )
        bounds = " AND ".join(
            [
                "estimate IS NOT NULL",
                *(["nonnegative IS NOT NULL"] if statistic.nonnegative else []),
                *(f"{n} >= 0 AND {n} < {size}" for n, size in zip(names, sizes, strict=True)),
            ]
        )
        ((rows, good),) = release.read(
            f"SELECT count(*), count(DISTINCT CASE WHEN {bounds} THEN {place} END) FROM node_combination_{number}",
            (),
            lambda cursor: cursor.fetchall(),
        )
        of_pairs = stored_as_pairs(statistic.reading)
        if not rows == good == (pair_number(sizes) if of_pairs else prod(sizes)) or (
            of_pairs and _most_inner(release, number, len(sizes)) > LINEAR
        ):
            raise refused(
                release.path, f"the view {statistic.view} lacks node combinations, or has some twice"
            )
        yield int(rows)


def _most_inner(release: Release, number: int, axes: int) -> int:
    """On how many axes at most a node combination of a statistic is not the root."""
    inner = " + ".join(f"(n{i + 1} <> 0)::INTEGER" for i in range(axes))
    sql = f"SELECT max({inner}) FROM node_combination_{number}"
    return int(release.read(sql, (), lambda cursor: cursor.fetchall())[0][0])
