"""Joined reports of several services to a release: a product of scores a person, added up.

Scores of one report add up to 1, so a view's margins are the estimates of fewer axes; where everybody has one row the
total is the number of people. A person's rows stand in one service's report: the scores of a cell with the bit for how
many rows there are, times R, are those of rows weighted min(r, R) / r in the mean, whatever r and the values have to do
with each other. A measure's bit says both counts (both bits together) and values in half-ranges (bit 1 minus bit 0).

| here     | there                                             | unit |
|----------|---------------------------------------------------|------|
| `counts` | sum over people of s_1 x s_2 x .. x s_K           | rows / R |
| `signed` | the same with one service's bit 1 minus bit 0     | half-ranges / R |
| moments  | over people, of a box's products: their squares and the products of both | |
| strength | variance of a part of a view                      | rows^2 |

A box's squares are the unbiased estimate of its variance given the people, plus the squared truth. That is the count
where a product's truth is 0 or 1; of rows and measures, where it may lie between, nothing is taken away.

**Pseudonyms.** Reports are joined by the person's pseudonym, however many there are. A spool may hold reports of one
service or of several; a report names its service's plan by hash. Pseudonyms are the spools' tokens. They are hashed
under the collector's secret key as soon as they are read. Hash and payload go to files by service and by the hash's
first bits, in a private folder that ends with the run; then people are joined from one part of the files after the
other, so memory holds one part alone.

Of several reports of one pseudonym at one service the least in byte order is kept, so the order of files does not
matter; whoever is not known to every service is left out and counted.

**Privacy**: reports were private before they left a service. No raw pseudonym is written anywhere; its hash under the
key is, for as long as the run lasts.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
from numpy.typing import NDArray

from dpsql.client.device import HEADER
from dpsql.client.plan import Plan
from dpsql.engines.duck import private_folder
from dpsql.errors import DataError
from dpsql.local.collector import HEADS, REASONS, CollectionManifest, heads_of
from dpsql.local.content import description, local_estimate, local_release
from dpsql.local.estimate import FittedTable, model_of
from dpsql.local.files import Spool, check_damage, counted_file, open_state
from dpsql.local.mechanisms.blue import ShareEstimate
from dpsql.local.oracles.oracle import FloatArray, Oracle, Packed, item_scores
from dpsql.local.services import Positions, Sheet, penalty, strengths
from dpsql.local.survey import Survey
from dpsql.local.tallies import layout_of, oracle_of
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import PrefixVariance, outer_products
from dpsql.progress import Progress, Stage
from dpsql.release.reports import BitLeftOut, LocalMeta, ManifestMeta
from dpsql.release.write import ReleaseBuilder, Statistic, assemble

ROWS = 100_000
"""Reports that are looked at at once."""
PERSON = 16
"""Bytes of a hashed pseudonym."""
PARTS = 64
"""Parts of all people: of ten million reports one holds 160,000."""


LinkedReports = Mapping[str, tuple[Oracle, Packed]]
"""Some of the people known to every service: by service, its oracle and their payloads (same order)."""


class Spooled(NamedTuple):
    """Reports by service and part of the people.

    Args:
        folder: a private one, with a file for each service, part and length of payload.
        files: spools that were read.
        reports: what they held.
        rejected: by reason; `joined_people` adds to it.
    """

    folder: Path
    files: int
    reports: int
    rejected: Counter[str]

    def manifest(self, sheet: Sheet, people: int) -> CollectionManifest:
        """Manifest of the count, once all people are joined."""
        reasons = {reason: n for reason, n in sorted(self.rejected.items()) if n}
        return CollectionManifest(self.files, self.reports, people * len(sheet.plans), reasons)


@contextmanager
def spooled_reports(
    sheet: Sheet, spools: Sequence[Path], key: bytes, progress: Progress
) -> Iterator[Spooled]:
    """Read spools into a private folder that ends with the `with` block.

    Args:
        sheet: the collection.
        spools: Parquet, CSV and JSON-lines files; a file given twice counts once.
        key: secret bytes under which pseudonyms are hashed.
        progress: told each file.

    Raises:
        OperationalError: there is no such file.
        MachineFault: one cannot be read or counted, or no folder can be made.
    """
    folder = private_folder()
    try:
        yield _read(sheet, spools, key, Path(folder.name), progress)
    finally:
        folder.cleanup()


def _read(sheet: Sheet, spools: Sequence[Path], key: bytes, folder: Path, progress: Progress) -> Spooled:
    rejected, seen, total = Counter[str](), set[str](), 0
    connection = open_state(next(iter(sheet.plans.values())))
    try:
        for path in spools:
            content = counted_file(path)
            if content.digest in seen:
                progress(Stage("known", path.name))
                continue
            seen.add(content.digest)
            spool, count = Spool(path, content, (), Counter()), 0
            for reports, tokens in _portions(connection, spool):
                count += len(reports)
                for file, records in _records(sheet, reports, tokens, key, rejected).items():
                    with (folder / file).open("ab") as out:
                        out.write(records)
            rejected += spool.unreadable
            total += count + spool.unreadable.total()
            progress(Stage("counted", path.name, {"reports": count}))
    finally:
        connection.close()
    return Spooled(folder, len(seen), total, rejected)


def _records(
    sheet: Sheet, reports: Sequence[bytes], tokens: Sequence[str | None], key: bytes, rejected: Counter[str]
) -> dict[str, bytearray]:
    """Checked reports as hashed pseudonym and payload, by the file that they go to."""
    pseudonyms = np.array([*tokens, None], dtype=object)[:-1]
    report_bytes = np.array([bytes(r) for r in reports] + [b""], dtype=object)[:-1]
    plan_hashes = np.array([r[2:10] for r in report_bytes.tolist()] + [b""], dtype=object)[:-1]
    named = np.array([t is not None for t in pseudonyms], dtype=bool)
    rejected["no pseudonym"] += int((~named).sum())
    rejected["another plan"] += int(named.sum())
    records: dict[str, bytearray] = defaultdict(bytearray)
    for service, plan in enumerate(sheet.plans.values()):
        positions = np.nonzero(named & (plan_hashes == plan.hash))[0]
        rejected["another plan"] -= positions.size
        for i in positions[_sound(plan, report_bytes[positions].tolist(), rejected)].tolist():
            person = hashlib.blake2b(pseudonyms[i].encode(), key=key, digest_size=PERSON).digest()
            payload = report_bytes[i][HEADER:]
            records[f"{service}.{person[0] % PARTS}.{len(payload)}"] += person + payload
    return records


def joined_people(sheet: Sheet, spooled: Spooled) -> Iterator[tuple[int, LinkedReports]]:
    """People known to every service, one part of them after the other; each report is read once.

    Args:
        sheet: the collection.
        spooled: from `spooled_reports`; its `rejected` is complete when the last part is.
    """
    for shard in range(PARTS):
        by_service = [_payloads(spooled, service, shard) for service in range(len(sheet.plans))]
        everywhere = sorted(set.intersection(*(set(payloads) for payloads in by_service)))
        lost = sum(len(payloads) - len(everywhere) for payloads in by_service)
        spooled.rejected["pseudonym not at every service"] += lost
        heard = {}
        for (name, plan), payloads in zip(sheet.plans.items(), by_service, strict=True):
            oracle = oracle_of(plan, plan.views[0])
            heard[name] = oracle, oracle.packed([payloads[person] for person in everywhere])
        if everywhere:
            yield len(everywhere), heard


def _payloads(spooled: Spooled, service: int, shard: int) -> dict[bytes, bytes]:
    """Payload by hashed pseudonym; the least of several."""
    payloads: dict[bytes, bytes] = {}
    for file in sorted(spooled.folder.glob(f"{service}.{shard}.*")):
        step, content = PERSON + int(file.suffix[1:]), file.read_bytes()
        for at in range(0, len(content), step):
            person, payload = content[at : at + PERSON], content[at + PERSON : at + step]
            spooled.rejected["repeated pseudonym"] += int(person in payloads)
            payloads[person] = min(payload, payloads.get(person, payload))
        file.unlink()
    return payloads


def _portions(
    connection: duckdb.DuckDBPyConnection, spool: Spool
) -> Iterator[tuple[list[bytes], list[str | None]]]:
    """A file's reports and their pseudonyms, some at a time; of a damaged file none."""
    try:
        for portion in spool.portions(connection):
            # All of it is readable before any of it is kept; no pseudonym gets to a table, which might be spilled.
            connection.execute(f"SELECT max(report), max(token) FROM {portion}").fetchall()
            rows = connection.execute(f"SELECT report, token FROM {portion}")
            while block := rows.fetchmany(ROWS):
                yield [report for report, _ in block], [token for _, token in block]
    except duckdb.Error as error:
        check_damage(spool, connection, error)
        spool.unreadable["unreadable file"] += 1


def _sound(plan: Plan, reports: Sequence[bytes], rejected: Counter[str]) -> NDArray[np.bool_]:
    """Mask of reports that answer a service's plan; the others are counted by reason."""
    view, sound = plan.views[0], np.zeros(len(reports), dtype=bool)
    head = np.frombuffer(heads_of(plan)[0], np.uint8)
    lengths = np.fromiter(map(len, reports), dtype=np.int64, count=len(reports))
    for length in np.unique(lengths).tolist():
        at = np.nonzero(lengths == length)[0]
        if length <= HEADER:
            rejected[REASONS[0]] += at.size
            continue
        table = np.frombuffer(b"".join(reports[i] for i in at.tolist()), np.uint8).reshape(-1, length)
        right = np.ones(at.size, dtype=bool)
        for size, reason in HEADS:
            failed = right & (table[:, :size] != head[:size]).any(axis=1)
            rejected[reason] += int(failed.sum())
            right &= ~failed
        valid, reason = oracle_of(plan, view).check(table[:, HEADER:])
        rejected[reason] += int((right & ~valid).sum())
        sound[at] = right & valid
    return sound


CHUNK = 4_000_000
"""Numbers held at once while people are added up."""
BOXES = 100
CAUTION = 0.8
"""Which quantile, over random boxes, of exact variance by model is put on a view's strengths."""


@dataclass(frozen=True)
class RunningSums:
    """One view's running sums over people, of counts and of one measure.

    Args:
        held: the view's axes, increasing.
        measure: the measure's position; None for counts alone.
        boxes: random runs of leaves, per axis, shape (BOXES, leaves).
        counts, signed: sums of products, axes in the order of services.
        moments: over boxes, sums of counts, of their squares, of products of both, of signed squares: shape (4, BOXES).
    """

    held: Positions
    measure: int | None
    boxes: Mapping[int, FloatArray]
    counts: FloatArray
    signed: FloatArray
    moments: FloatArray


def empty_sums(survey: Survey, sheet: Sheet, held: Positions, measure: int | None) -> RunningSums:
    """Zeros, and boxes that follow from the plans."""
    rng = np.random.default_rng(int.from_bytes(b"".join(p.hash for p in sheet.plans.values()), "big"))
    order = [a for service_axes in sheet.asked(held, measure).values() for a in service_axes]
    shape = [survey.axes[a].leaves for a in order]
    boxes = {a: _halves(survey.axes[a].leaves, rng) for a in held}
    return RunningSums(held, measure, boxes, np.zeros(shape), np.zeros(shape), np.zeros((4, BOXES)))


def add_people(sheet: Sheet, sums: RunningSums, people: int, heard: LinkedReports) -> None:
    """Add some people's products to a view's sums."""
    services = sheet.asked(sums.held, sums.measure)
    widest = max(sums.counts.size, *(plan.views[0].domain for plan in sheet.plans.values()))
    step = max(CHUNK // widest, 1)
    for first in range(0, people, step):
        size = min(step, people - first)
        counts = signed = np.ones((size, 1))
        inside = values = np.ones((size, BOXES))
        for name, service_axes in services.items():
            # cells of the service's axes inside each box, (cells, boxes)
            covered = outer_products([np.ones((BOXES, 1)), *(sums.boxes[a] for a in service_axes)]).T
            rows, bits = _cell_scores(sheet, heard, name, first, first + size, service_axes)
            signed_scores = bits if sheet.tells(name, sums.measure) else rows
            counts, signed = outer_products([counts, rows]), outer_products([signed, signed_scores])
            inside, values = inside * (rows @ covered), values * (signed_scores @ covered)
        sums.counts[...] += counts.sum(axis=0).reshape(sums.counts.shape)
        sums.signed[...] += signed.sum(axis=0).reshape(sums.signed.shape)
        products = (inside, inside**2, inside * values, values**2)
        sums.moments[...] += np.array([product.sum(axis=0) for product in products])


def _cell_scores(
    sheet: Sheet, heard: LinkedReports, name: str, first: int, last: int, service_axes: Positions
) -> tuple[FloatArray, FloatArray]:
    """One service's scores over the cells of some of its axes: of rows, and of bit 1 minus bit 0, (people, cells)."""
    plan, (oracle, packed) = sheet.plans[name], heard[name]
    scores, layout = item_scores(oracle, oracle.supports(packed[first:last])), layout_of(plan.views[0])
    rows = scores[:, layout.rows]
    bits = np.zeros_like(rows) if layout.bits is None else scores[:, layout.bits]
    dropped = tuple(i + 1 for i, a in enumerate(sheet.axes[name]) if a not in service_axes)
    shape = [len(scores), *(axis.leaves for axis in plan.axes)]

    def cells(items: FloatArray) -> FloatArray:
        return np.asarray(items.reshape(shape).sum(axis=dropped).reshape(len(scores), -1))

    return cells(rows + bits), cells(bits - rows)


def _halves(leaves: int, rng: np.random.Generator) -> FloatArray:
    """Random runs of leaves, from one leaf to all but one, shape (BOXES, leaves)."""
    low = rng.integers(0, leaves, BOXES)
    length = rng.integers(1, max(leaves, 2), BOXES)
    at = (np.arange(leaves)[None, :] - low[:, None]) % leaves
    return np.asarray(at < length[:, None], dtype=np.float64)


def view_table(survey: Survey, sheet: Sheet, sums: RunningSums, people: int) -> FittedTable:
    """Unbiased rows of a view, and strengths that hold for `CAUTION` of random boxes at least.

    A measure's sums are around the value that lets them err independently of counts.

    Args:
        survey: the catalog's questions.
        sheet: the collection.
        sums: of the view.
        people: whose reports were joined.
    """
    plain, (inside, squares, products, signed) = strengths(sheet, sums.held, people), sums.moments
    values, mid, seen = sums.counts, 0, squares - (inside if sheet.rows == 1 else 0.0)
    if sums.measure is not None:
        lower, upper = survey.measures[sums.measure].bounds
        middle, half = (lower + upper) / 2, (upper - lower) / 2
        slope = float(np.clip(products.sum() / max(float(squares.sum()), 1e-300), -1.0, 1.0))
        mid = min(max(round(middle + half * slope), lower), upper)
        shift = middle - mid
        values = half * sums.signed + shift * sums.counts
        of_measure = strengths(sheet, sums.held, people, sums.measure)
        plain = {places: half**2 * s + shift**2 * plain[places] for places, s in of_measure.items()}
        seen = half**2 * signed + 2 * half * shift * products + shift**2 * squares
    # By how much the boxes' exact variances are above the model's
    splits = tuple(AxisSplit(PrefixVariance(even_model(survey.axes[a].leaves))) for a in sums.held)
    model_variance = ProductReading(splits, plain).covariance([sums.boxes[a] for a in sums.held]).noise
    raised, factor = max(float(np.quantile(seen / model_variance, CAUTION)), 1.0), float(sheet.rows) ** 2
    components = {places: s * raised * factor for places, s in plain.items()}
    return FittedTable(sums.held, _in_order(sheet, sums, values) * sheet.rows, components, mid)


def _in_order(sheet: Sheet, sums: RunningSums, values: FloatArray) -> FloatArray:
    """Axes from the order of services to the view's."""
    order = [a for service_axes in sheet.asked(sums.held, sums.measure).values() for a in service_axes]
    return np.moveaxis(values, range(len(order)), [sums.held.index(a) for a in order])


def even_model(leaves: int) -> FloatArray:
    """I - J/m: what a report's scores leave of each other when they add up to 1."""
    return model_of(ShareEstimate(np.zeros(leaves), np.eye(leaves) - 1 / leaves))


def joined_content(
    survey: Survey, sheet: Sheet, spools: Sequence[Path], key: bytes, release_id: str, progress: Progress
) -> tuple[ReleaseBuilder, CollectionManifest]:
    """Join reports by pseudonym, a part of the people after the other, and estimate every view.

    Args:
        survey: the catalog's questions.
        sheet: the collection.
        spools: files of reports; a file given twice counts once.
        key: secret bytes under which pseudonyms are hashed.
        release_id: the release's id.
        progress: told each file.

    Returns:
        All that the release file will hold, and what was counted.

    Raises:
        OperationalError: a file cannot be opened.
        DataError: no two people are known to every service.
    """
    view_sums = [
        (name, empty_sums(survey, sheet, view_axes, measure))
        for measure in [None, *range(len(survey.measures))]
        for name, (view_axes, told) in survey.views.items()
        if measure is None or measure in told
    ]
    people = 0
    with spooled_reports(sheet, spools, key, progress) as spooled:
        for some, heard in joined_people(sheet, spooled):
            people += some
            for _, sums in view_sums:
                add_people(sheet, sums, some, heard)
        manifest = spooled.manifest(sheet, people)
    if people < 2:
        why = ", ".join(f"{count} {reason}" for reason, count in manifest.rejected.items())
        raise DataError(
            f"no two people have a sound report of every service under one pseudonym: {why}",
            hint="give the reports of all services, each with the person's pseudonym as its token",
        )
    progress(Stage("writing", counts={"people": people}))
    statistics = []
    for view, sums in view_sums:
        fitted = view_table(survey, sheet, sums, people)
        words = f"product over {len(sheet.asked(sums.held, sums.measure))} services"
        described = description(survey, view, fitted, sums.measure, sheet.rows, sheet.epsilon)
        statistics.append(Statistic(described, local_estimate(fitted.values, fitted.strengths, words)))
    models = [PrefixVariance(even_model(axis.leaves)) for axis in survey.axes]
    crossing = {view_axes for view_axes, _ in survey.views.values() if len(sheet.asked(view_axes)) > 1}
    local = LocalMeta(
        collection=sheet.collection,
        participation=survey.collection.participation.name,
        everybody=survey.collection.everybody,
        manifest=ManifestMeta(**manifest._asdict()),
        tau=sheet.rows,
        people=people,
        services={name: str(plan.epsilon) for name, plan in sheet.plans.items()},
        # how much noisier the reports are than those of devices that hold all axes
        times_the_variance_of_a_device_join={
            " and ".join(survey.axes[a].name for a in view_axes): penalty(sheet, view_axes)
            for view_axes in sorted(crossing)
        },
        simulated=sheet.simulated or None,
    )
    content = local_release(
        survey,
        sheet.plans.values(),
        sheet.catalog,
        lambda trees: assemble(statistics, models, trees),
        local,
        release_id,
    )
    # rows of a person beyond R, of which nobody was asked how many there are
    bounding = [BitLeftOut(survey.of, sheet.rows, sheet.rows)] if sheet.rows > 1 else []
    return replace(content, bounding=bounding), manifest
