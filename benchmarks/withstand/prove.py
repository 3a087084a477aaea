"""What docs/audit.md promises: no aimed neighbours lose more than is claimed, tight claims are nearly used up.

Three sources of neighbours: every joint of `tests/privacy/joints.py`, random stars, and `dpsql audit --prove`'s own
for each shipped catalog under both neighbour relations. Every defect of `tests/privacy/plant.py` is put back once.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.processes import cpu_of
from benchmarks.promises.stars import random_pair
from dpsql.catalog import Catalog, load_catalog
from dpsql.curator.prove import prove
from dpsql.examples.retail import make_star, write_star
from dpsql.noise import ExactNoise, os_entropy
from tests.privacy.joints import JOINTS, TIGHT, Joint
from tests.privacy.loss import measure
from tests.privacy.plant import is_found, planted
from tests.privacy.test_joint_draws import MANY

STARS = 300
CATALOGS = Path(__file__).parents[2] / "catalog"
RECORD = Path(__file__).parents[1] / "results" / "draws.md"
RECORD_HEAD = """# Every draw of a publish, beside its neighbour's

Each line is a pair of neighbours that are published whole, by `python -m benchmarks.withstand.prove`. Draws of the two
are equal in number, place, noise and budget, or the pair is told apart; exact integers move by no more than the noise
is for, which is a loss of at most 1 of the claim.

| pair | draws | drawn in | sum of moves | loss over claim |
|---|--:|---|--:|--:|"""
PEOPLE, PRODUCTS = 200, 20
RELATIONS = ("add_remove", "replace_one")


def measured_joints(folder: Path) -> dict[Joint, float]:
    """The share of its claim that each joint loses; `RECORD` is written anew.

    A pair whose draws differ in their number, place, noise or budget is told apart before any loss is measured.
    """
    shares, lines = {}, [RECORD_HEAD]
    for i, joint in enumerate(JOINTS):
        loss = joint.measured(folder / str(i))
        shares[joint] = loss.share
        places = {draw.where.rpartition(".")[0].removeprefix("dpsql.") for draw in loss.draws}
        moved = sum(draw.moved for draw in loss.draws)
        lines.append(
            f"| {joint.name} | {len(loss.draws)} | {', '.join(sorted(places))} | {moved} | {loss.share:.4f} |"
        )
    RECORD.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return shares


def worst_star(folder: Path) -> float:
    """The largest loss over its claim of random stars."""
    worst = 0.0
    for seed in range(STARS):
        pair = random_pair(seed)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            star = Path(place) / "star"
            loss = measure(pair.catalog, pair.left, pair.right, star, batches=pair.batches, seed=seed)
        if loss.share > 1:
            print(f"star {seed} ({pair.kind}): {loss.share:.6g} of the claim")
        worst = max(worst, loss.share)
    return worst


def is_tight(catalog: Catalog) -> bool:
    """Whether the claim is proved to be used up: bounds are declared, and no batch of a life is left out."""
    chooses = any(catalog.tables[of].chooses_rows for of in catalog.star.tables)
    return not chooses and catalog.stream is None


def shipped(names: Sequence[str], data: Path) -> list[Catalog]:
    """Shipped catalogs whose public tables are here; the bundled shop's are made."""
    found = []
    for file in sorted(CATALOGS.glob("*.yaml")):
        catalog = load_catalog(file)
        if catalog.collection is not None or (names and file.stem not in names):
            continue
        source = catalog.raw_source()
        if "DPSQL_DATA" in source.root and "DPSQL_DATA" not in os.environ:
            print(f"{file.stem}: left out, DPSQL_DATA is not set")
            continue
        if source.root == "data":
            source = source.model_copy(update={"root": str(data)})
            catalog = catalog.model_copy(update={"source": source})
        found.append(catalog)
    return found


def measured_catalogs(names: Sequence[str], folder: Path) -> tuple[int, float, float]:
    """Loss over claim of shipped catalogs under both neighbour relations.

    Returns:
        How many catalogs, the worst loss, and the least of those whose claim is tight.
    """
    write_star(folder / "data", make_star(1, PEOPLE, PRODUCTS))
    worst, tight, catalogs = 0.0, 1.0, shipped(names, folder / "data")
    for catalog in catalogs:
        for relation in RELATIONS:
            privacy = catalog.privacy.model_copy(update={"neighbours": relation})
            proof = prove(catalog.model_copy(update={"privacy": privacy}))
            print(f"{catalog.file.stem if catalog.file else catalog.name}: {proof.words}", flush=True)
            worst = max(worst, proof.worst.share)
            if relation == RELATIONS[0] and is_tight(catalog):
                tight = min(tight, proof.worst.share)
    return len(catalogs), worst, tight


def many_numbers() -> float:
    """CPU seconds of drawing a count and 15 sums over 1,000 cells at epsilon 1, by the system's entropy."""
    units, noise = np.full(1_000, 1 << 30, np.int64), ExactNoise(os_entropy())
    return cpu_of(lambda: noise.joint(units, 1 << 30, [1, *[5_000] * 15]))


def figures_of(figures: Figures, folder: Path, catalogs: Sequence[str] = ()) -> None:
    """Measure all sources of neighbours, of shipped catalogs those that are named; `none` for none."""
    joints = measured_joints(folder / "joints")
    figures.at_most(f"prove: worst loss over claim, {len(JOINTS)} joints", max(joints.values()), 1.0)
    tight = [share for joint, share in joints.items() if joint.proved == TIGHT]
    figures.at_least(f"prove: least loss over claim, {len(tight)} tight joints", min(tight), 0.98)
    others = [share / joint.proved for joint, share in joints.items() if 0 < joint.proved < TIGHT]
    figures.table(f"prove: least loss over proved tightness, {len(others)} other joints", min(others))
    figures.at_most(f"prove: worst loss over claim, {STARS} random stars", worst_star(folder), 1.0)
    many = []
    for i, (measured, _) in enumerate(MANY.values()):
        (place := folder / f"many{i}").mkdir()
        many.append(measured(place).share)
    figures.at_most(f"prove: worst loss over claim, {len(MANY)} pairs of 11 to 29 numbers", max(many), 1.0)
    figures.at_most("a count and 15 sums over 1,000 cells drawn, CPU s", many_numbers(), 5.0)
    plants = planted()
    missed = [plant.name for i, plant in enumerate(plants) if not is_found(plant, folder / f"p{i}")]
    figures.at_most(f"prove: planted defects not found, of {len(plants)}", len(missed), 0.0)
    if list(catalogs) != ["none"]:
        number, worst, least = measured_catalogs(catalogs, folder)
        words = f"{number} shipped catalogs under both relations"
        figures.at_most(f"prove: worst loss over claim, {words}", worst, 1.0)
        title = "prove: least loss over claim, shipped catalogs with a tight claim"
        figures.at_least(title, least, 0.98)


if __name__ == "__main__":
    main(figures_of)
