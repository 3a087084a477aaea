"""Releases beside a target: if the ledger does not know one of its lineage, the ledger is not the one that was charged.

Whoever may write into the folder must not be able to stop a publish. So only files of the one who publishes are looked
at, links and odd files are passed over, and what cannot be read as a release, or is another lineage's, stops nothing.

**Privacy**: reads release files, which are public.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from dpsql.errors import ReleaseError
from dpsql.ledger import PublicRelease
from dpsql.release import open_release

PROMISE = "promise.json"
_LARGEST_PROMISE = 1 << 26


def releases_beside(target: Path, lineage: str) -> Iterator[PublicRelease]:
    """Central releases and streams of a lineage in the target's folder.

    Args:
        target: the release that is to be made.
        lineage: its lineage.

    Yields:
        Their paths and the ids that they claim; local collections are charged to no ledger and left out.
    """
    target = target.absolute()
    for path in sorted(target.parent.glob("*.dpsql")):
        meta = {} if path == target else _meta(path)
        catalog = meta.get("catalog")
        privacy = catalog.get("privacy") if isinstance(catalog, dict) else None
        named = privacy.get("lineage") if isinstance(privacy, dict) else None
        if named == lineage and "local" not in meta:
            yield PublicRelease(path, str(meta.get("release_id")))


def _meta(path: Path) -> dict[str, Any]:
    """What a release or a stream says about itself; nothing, if it is no such thing or somebody else's."""
    if _is_own(path, stat.S_ISDIR):
        return _promise(path / PROMISE)
    if not _is_own(path, stat.S_ISREG):
        return {}
    try:
        with closing(open_release(path, insecure=True)) as release:
            return release.meta
    except ReleaseError:
        return {}


def _promise(file: Path) -> dict[str, Any]:
    if not _is_own(file, stat.S_ISREG) or file.stat().st_size > _LARGEST_PROMISE:
        return {}
    try:
        value = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_own(path: Path, kind: Any) -> bool:
    """Whether a path is of a kind, no link, and belongs to the one who publishes."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return bool(kind(found.st_mode)) and found.st_uid == os.geteuid()
