"""`dpsql audit`: an offline check that a release file holds what its catalog says, and nothing else.

Everything in the file but the noisy integers is recomputed from the catalog
inside it and from those integers, and compared (`contents`); what cannot be recomputed is named. The
integers themselves are checked for the scale of their noise, and the mechanism that made them is audited by sampling
(`blackbox`).

A stream's files are the named ones, and its newest state follows from its segments. Its strategies are taken from the
promise, which the ledger seals; axes over public tables are taken from the state.

Erasing people: what dpsql keeps of one person, by place.

| given | of one person | erased by |
|---|---|---|
| a stream's directory | how many batches she was in, in the private state beside the ledger | `streams` |
| a ledger | keyed hashes of up to 64 rows a table, of which some may be hers | `ledger.row_sketches` |
| a collection's state (`collect --state`) | scrambled reports, under a keyed hash of her token | `forget_tokens` |
| stored reports (`collect --for`) | one scrambled item, under her key | `forget_stored` |
| a state's tallies, a release | nothing: sums over people | - |

A deleted row's bytes stay in a DuckDB file, so a file is written anew without them and takes the old one's place.

**Privacy**: docs/privacy.md, "Erasing a person".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

from dpsql.catalog import Catalog, catalog_from_json, load_catalog, spec_hash
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.private_columns import with_keys
from dpsql.catalog.tables import Table
from dpsql.central.central import PROMISE
from dpsql.curator.audit.blackbox import check_sampled
from dpsql.curator.audit.contents import (
    AuditReport,
    Check,
    axes_from_file,
    check_axes,
    check_budgets,
    check_estimates,
    check_key_lists,
    check_noise,
    check_replayed,
    check_sums,
    check_tables,
    read_table,
    read_views,
    replan,
    replays,
)
from dpsql.errors import DataError, Error, InterfaceError, OperationalError
from dpsql.ledger.files import PRIVATE_FILE, beside, file_hash, holds, put_in_place, sync
from dpsql.ledger.rules import forget_sketches
from dpsql.ledger.store import ledger_entries
from dpsql.local.collector import token_prefix
from dpsql.local.files import KEY_BYTES, SCHEMA, check_private, connect_file, token_key, unwritable
from dpsql.local.survey import read_items, write_items
from dpsql.noise import Noise
from dpsql.release import Release, open_release
from dpsql.release.format import SpentAmount
from dpsql.release.signature import MANIFEST
from dpsql.release.write import ReleaseBuilder
from dpsql.row_expressions import literal
from dpsql.streams import publish as stream
from dpsql.streams.plan import StreamPlan, thawed
from dpsql.streams.public import StreamManifest, read_head, read_manifest, read_segments
from dpsql.streams.publish import published_numbers, state_content
from dpsql.tree import IntArray

__all__ = ["AuditReport", "Check", "audit_release"]


def audit_release(path: Path, noise: Noise, *, catalog: Catalog | None, samples: int) -> AuditReport:
    """Check a release file offline.

    Args:
        path: the file, or a stream directory.
        noise: for the auditor's own runs.
        catalog: the curator's catalog, for the ledger and for public tables; None to work from the file alone.
        samples: runs of the auditor for each statistic; 0 leaves it out.

    Returns:
        One line for each claim. It is never an error that a claim fails.

    Raises:
        ReleaseError: the file cannot be opened at all.

    **Privacy**: reads the release, public tables and, with a catalog, the ledger; no private table, and of a stream
    never its private state.
    """
    with closing(open_release(path, insecure=True)) as release:
        if path.is_dir():
            return AuditReport(path, tuple(_stream_checks(path, release, catalog)))
        bought = None if catalog is None else as_bought(catalog, release)
        return AuditReport(path, tuple(_checks(release, noise, bought, samples)))


def as_bought(catalog: Catalog, release: Release) -> Catalog:
    """The catalog with what `dpsql buy` put in: the views and epsilon of a few questions, and whose keys are listed."""
    views, privacy = release.catalog.views, release.catalog.privacy
    if not views or not all(view.questions for view in views.values()):
        return catalog
    spent = catalog.privacy.model_copy(update={"epsilon": privacy.epsilon, "releases": None})
    tables = {
        name: _as_listed(table, release.catalog.tables.get(name)) for name, table in catalog.tables.items()
    }
    return catalog.model_copy(update={"views": views, "privacy": spent, "tables": tables})


def _as_listed(table: Table, bought: Table | None) -> Table:
    """A table, private columns with the list that a purchase took from another release."""
    changed = {}
    for name, spec in table.columns.items():
        keys = None if bought is None or name not in bought.columns else bought.columns[name].private_keys
        if spec.private_keys is not None and keys is not None and keys.share == 0:
            changed[name] = spec.private_keys.model_copy(update={"share": keys.share, "known": keys.known})
    return with_keys(table, changed)


def _checks(release: Release, noise: Noise, catalog: Catalog | None, samples: int) -> Iterator[Check]:
    test = release.meta.insecure_entropy
    yield Check("noise from the system's entropy", not test, "test entropy protects nobody" if test else "")
    if catalog is not None and release.meta.local is not None:
        yield Check("charged to the ledger", None, "nothing: people spend on their own devices")
        same = json.loads(catalog.to_json()) == release.meta.catalog
        yield Check("the catalog is the one it was made from", same)
    elif catalog is not None:
        yield from _check_ledger(release, catalog)
    vouched = release.meta.privacy.vouched
    if vouched:
        yield Check(
            f"rows of {', '.join(vouched)} are each unit's own", None, "the curator vouches: trusted SQL"
        )
    try:
        yield from check_tables(release)
        yield check_sums(release)
        if release.meta.local is not None:
            yield Check("rebuilt from its plan", None, "people's own reports: check the collection's plan")
            return
        yield from _recomputed(release, noise, catalog, samples)
    except Error as error:
        yield Check("rebuilt from its catalog", False, str(error))
    except (duckdb.Error, KeyError, ValueError, IndexError) as error:
        yield Check("readable as a release of this version", False, type(error).__name__)


def _recomputed(release: Release, noise: Noise, catalog: Catalog | None, samples: int) -> Iterator[Check]:
    """Numbers recomputed from the catalog and the noisy integers."""
    replanned = replan(release, catalog)
    yield from check_key_lists(release, replanned)
    yield from check_axes(release, replanned)
    stored = read_views(release, replanned)
    yield from check_budgets(release, replanned, stored)
    yield from check_estimates(release, replanned, stored)
    yield check_noise(stored)
    yield from check_replayed(release, replanned)
    recomputable = replanned.linear.keys() | replays(replanned).keys()
    if apart := sorted({s.view for i, s in enumerate(replanned.plan.statistics) if i not in recomputable}):
        why = "mechanism or bounds were chosen from released numbers, or people are counted by gaps or cells"
        yield Check(f"numbers of {', '.join(apart)}", None, why)
    if samples:
        yield from check_sampled(replanned, stored, samples, noise)


def _check_ledger(release: Release, catalog: Catalog) -> Iterator[Check]:
    """The file is the one that was charged, for this specification and these amounts."""
    identity = release.meta.release_id
    entries = [entry for entry in ledger_entries(ledger_path(catalog)) if entry.release_id == identity]
    if not entries:
        yield Check("charged to the ledger", False, f"no entry for release {identity}")
        return
    (ledger_entry,) = entries
    charged = f"epsilon {float(ledger_entry.epsilon):g}{ledger_entry.currency.at_delta}, {ledger_entry.published_at}"
    yield Check("charged to the ledger", True, charged)
    yield Check("the file is the one that was charged", file_hash(release.path) == ledger_entry.sha256)
    yield Check("the catalog is the one it was made from", spec_hash(catalog) == release.meta.spec_hash)
    promise = release.meta.privacy
    claimed = Fraction(promise.mu2 or promise.epsilon), Fraction(promise.key_delta or 0)
    reserved = Fraction(ledger_entry.cost), Fraction(ledger_entry.key_cost)
    yield Check("the file claims what was charged", claimed == reserved)


FOLDERS = ("segments", "states")


def _stream_checks(directory: Path, release: Release, catalog: Catalog | None) -> Iterator[Check]:
    test = release.meta.insecure_entropy
    yield Check("noise from the system's entropy", not test, "test entropy protects nobody" if test else "")
    try:
        head, manifest = read_head(directory), read_manifest(directory)
        yield from _check_files(directory, head, manifest)
        promise = json.loads((directory / PROMISE).read_text(encoding="utf-8"))
        if catalog is not None:
            yield from _check_stream_ledger(directory, promise, catalog)
        inside = catalog_from_json(json.dumps(promise["catalog"]))
        plan = thawed(inside, axes_from_file(release, inside, {}, {}), 0, promise["strategies"])
        columns = read_segments(directory, manifest)
        yield _check_schedule(plan, columns, manifest.batches)
        published = published_numbers(columns, plan)
        yield _check_promise(release, promise, manifest, plan)
        yield from _check_state(release, state_content(plan, manifest, published, insecure=test), published)
    except Error as error:
        yield Check("rebuilt from its promise", False, str(error))
    except (OSError, KeyError, ValueError, TypeError) as error:
        yield Check("readable as a stream of this version", False, type(error).__name__)


def _check_files(directory: Path, head: StreamManifest, manifest: StreamManifest) -> Iterator[Check]:
    """Every named file is there as it was published, and no other file is."""
    named = {named_file.file: named_file.sha256 for named_file in (*head.pages, *manifest.segments)}
    named |= {state.file: state.sha256 for state in head.states}
    named |= dict([head.base] if head.base else [])
    wrong = sorted(name for name, sha256 in named.items() if not holds(directory / name, sha256))
    yield Check(f"{len(named)} files as they were published", not wrong, ", ".join(wrong[:5]))
    files = {str(path.relative_to(directory)) for path in directory.rglob("*")}
    unnamed = sorted(files - {*named, MANIFEST, *FOLDERS})
    yield Check("no file but those that the manifest names", not unnamed, ", ".join(unnamed[:5]))


def _check_stream_ledger(directory: Path, promise: dict[str, Any], catalog: Catalog) -> Iterator[Check]:
    entries = [e for e in ledger_entries(ledger_path(catalog)) if e.release_id == promise["release_id"]]
    yield Check("charged to the ledger once", len(entries) == 1)
    for ledger_entry in entries:
        yield Check(
            "the promise is the one that was charged", holds(directory / PROMISE, ledger_entry.sha256)
        )
        spends = [[line.purpose, str(line.amount), line.currency] for line in ledger_entry.spend_lines()]
        yield Check("the promise names the amounts that were charged", spends == promise["spends"])


def _check_schedule(plan: StreamPlan, columns: dict[str, IntArray], batches: int) -> Check:
    """Each batch published the nodes that its strategy says, all their cells, and nothing else."""
    wanted = [
        (statistic, emission.level, emission.lo, emission.hi, cell)
        for batch in range(batches)
        for statistic, cells in enumerate(plan.spec().cells)
        for emission in plan.strategy.emissions(batch)
        for cell in range(cells)
    ]
    published = np.stack([columns[name] for name in ("statistic", "level", "lo", "hi", "cell")], axis=1)
    matches = published.shape == (len(wanted), 5) and bool((published == np.array(wanted)).all())
    return Check("numbers only where the strategy publishes them", matches, f"{len(published)} numbers")


def _check_promise(
    release: Release, promise: dict[str, Any], manifest: StreamManifest, plan: StreamPlan
) -> Check:
    """The newest state repeats the promise."""
    meta = release.meta
    claims = {
        "release id": {meta.release_id, promise["release_id"], manifest.release_id},
        "unit": {meta.privacy.unit, promise["unit"], plan.unit},
        "specification": {meta.spec_hash, promise["spec_hash"]},
        "batch": {meta.stream and meta.stream.as_of_batch, manifest.as_of_batch},
        "spends": {meta.spends, tuple(SpentAmount(*line[:2]) for line in promise["spends"])},
    }
    differ = sorted(claim for claim, values in claims.items() if len(values) > 1)
    if meta.catalog != promise["catalog"]:
        differ.append("catalog")
    return Check("the newest state repeats the promise", not differ, ", ".join(differ))


def _check_state(
    release: Release, recomputed: ReleaseBuilder, published: Sequence[IntArray]
) -> Iterator[Check]:
    """The newest state is what follows from the segments."""
    nodes = [part.content.nodes for part in recomputed.statistics]
    for table, column, wanted in (
        ("measurement", "value", published), ("node_combination", "estimate", nodes)
    ):  # fmt: skip
        wrong = []
        for i, values in enumerate(wanted):
            stored = np.asarray(read_table(release, f"{table}_{i}")[column], dtype=np.int64)
            wrong += [] if np.array_equal(stored, values.ravel()) else [f"{table}_{i}"]
        yield Check(f"every {table.replace('_', ' ')} follows from the segments", not wrong, ", ".join(wrong))
    factors = [sorted(s2 for _, s2 in part.meta.components) for part in recomputed.statistics]
    stored_parts = [sorted(s2 for _, s2 in statistic.components) for statistic in release.statistics]
    matches = all(np.allclose(a, b, rtol=1e-9) for a, b in zip(factors, stored_parts, strict=True))
    yield Check("variance factors follow from the promise", matches)


PARQUET = b"PAR1"
ERASED = "erased on request"
TABLES = ("plan", "file", "size", "rejected", "tally", "people")


def is_stored(path: Path) -> bool:
    """True if a file is Parquet, as stored reports are."""
    try:
        with path.open("rb") as file:
            return file.read(len(PARQUET)) == PARQUET
    except OSError as error:
        raise OperationalError(f"{path} cannot be read ({error.strerror})", hint="check the path") from error


def is_state(path: Path) -> bool:
    """True if a DuckDB file is the state of a collection."""
    try:
        with duckdb.connect(str(path), read_only=True, config={"enable_external_access": "false"}) as state:
            names = {
                str(name) for (name,) in state.execute("SELECT table_name FROM duckdb_tables()").fetchall()
            }
    except duckdb.Error as error:
        raise OperationalError(
            f"{path.name} cannot be opened",
            hint="name a state, a stream or stored reports, which nobody has open",
        ) from error
    return {*TABLES, "held"} == names


def forget_tokens(path: Path, tokens: Collection[str]) -> int:
    """Erase the reports that came with some tokens from a collection's state.

    Files that were counted stay known, so naming them again brings nothing back.

    Args:
        path: the state; its key lies beside it.
        tokens: as they stood beside the reports.

    Returns:
        How many reports were erased.

    Raises:
        OperationalError: it is open elsewhere, its key is gone, or it cannot be written; nothing was erased.

    **Privacy**: reports were private before they left a device. How many were erased shows in the manifest, as how many
    reported does.
    """
    check_private(path)
    prefix, aside = token_prefix(token_key(path, bytes(KEY_BYTES))), path.with_name(path.name + ".new")
    try:
        aside.unlink(missing_ok=True)
        fresh = connect_file(aside)
        try:
            erased = _fill_without(fresh, path, prefix, sorted(set(tokens)))
            if erased:
                put_in_place(aside, path, PRIVATE_FILE)  # while the old file is locked: nobody may add to it
        finally:
            fresh.close()
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error
    except duckdb.Error as error:
        raise OperationalError(
            f"{path.name} could not be written anew, nothing was erased",
            hint="check that nobody has it open, and that disk and memory have room",
        ) from error
    return erased


def _fill_without(fresh: duckdb.DuckDBPyConnection, path: Path, prefix: bytes, tokens: list[str]) -> int:
    """Copy a state without some tokens' reports; how many those are."""
    fresh.execute(f"ATTACH {literal(str(path))} AS before")
    fresh.execute("CHECKPOINT before")  # no log of the old file outlives it
    fresh.execute(SCHEMA)
    fresh.execute(
        "CREATE TEMP TABLE wanted AS SELECT CAST('0x' || left(sha256($prefix || encode(token)), 32) AS UHUGEINT) AS "
        "token FROM (SELECT unnest($tokens::VARCHAR[]) AS token)",
        {"prefix": prefix, "tokens": tokens},
    )
    ((erased,),) = fresh.execute("SELECT count(*) FROM before.held SEMI JOIN wanted USING (token)").fetchall()
    for table in TABLES:
        fresh.execute(f"INSERT INTO {table} FROM before.{table}")
    fresh.execute("INSERT INTO held FROM before.held ANTI JOIN wanted USING (token)")
    fresh.execute("INSERT INTO rejected VALUES ('', ?, ?)", [ERASED, erased])
    fresh.execute("CHECKPOINT")
    return int(erased)


def forget_stored(path: Path, units: Collection[str]) -> int:
    """Erase the reports of some people from a file of stored reports.

    Args:
        path: of `collect --for`.
        units: their keys, as text.

    Returns:
        How many reports were erased.

    Raises:
        OperationalError: it is no such file, or cannot be written; nothing was erased.
        DataError: no report would be left; delete the file instead.

    **Privacy**: what the file told of them, and that they reported, is gone from it.
    """
    answered, rows = read_items(path)
    remaining, aside = [row for row in rows if row[0] not in set(units)], path.with_name(path.name + ".new")
    if not remaining:
        raise DataError(f"no report would be left in {path.name}", hint="delete the file")
    if len(remaining) < len(rows):
        try:
            write_items(aside, answered, remaining)
            sync(aside)
            aside.replace(path)
            sync(path.parent)
        except (OSError, duckdb.Error) as error:
            raise unwritable(path, error) from error
        finally:
            aside.unlink(missing_ok=True)
    return len(rows) - len(remaining)


class Forgotten(NamedTuple):
    """Erased data of some people.

    Args:
        erased: reports, or counts of batches.
        said: in words.
    """

    erased: int
    said: str


def forget_people(held: Path, people: Sequence[str], catalog: Path | None) -> Forgotten:
    """Erase some people from a stream, a collection's state or stored reports.

    Args:
        held: where they are kept.
        people: tokens of reports, or keys of the stream's privacy unit, as text.
        catalog: of a stream, its catalog.

    Raises:
        InterfaceError: a stream without its catalog.
        OperationalError: it cannot be read or written; nothing was erased.
    """
    number = len(set(people))
    if held.is_dir():
        if catalog is None:
            raise InterfaceError("a stream's private state lies beside its ledger", hint="name its --catalog")
        people_erased = stream.forget_people(load_catalog(catalog), held, people)
        return Forgotten(
            people_erased,
            f"erased the batch counts of {people_erased} of {number} people; no later batch admits them",
        )
    if beside(held, ".head").exists():
        tables = forget_sketches(held)
        if not tables:
            return Forgotten(
                0, "nothing to erase: the ledger contains no sketch of rows, and nothing else about people"
            )
        return Forgotten(
            tables,
            f"erased the sketches of {tables} tables' rows, whoever is in them; the next charge makes new ones",
        )
    if is_stored(held):
        erased = forget_stored(held, people)
    elif is_state(held):
        erased = forget_tokens(held, people)
    else:
        return Forgotten(
            0, f"{held} contains sums over people and no row of any person: there is nothing to erase"
        )
    return Forgotten(
        erased, f"erased {erased} reports of {number} people from {held}; spools are yours to erase"
    )
