"""Releases that this process has open, kept while their files stay the same, and the one asked when none is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dpsql.errors import InterfaceError

if TYPE_CHECKING:
    from dpsql.answer.answerer import Answerer

ReleasePath = str | os.PathLike[str]

_default: list[Path] = []
_open: dict[tuple[str, int, int, bool], Answerer] = {}


def answerer(
    release: ReleasePath | None, as_of: int | str | None = None, *, nonnegative: bool = False
) -> Answerer:
    """The open release; a stream directory is opened anew once it has moved on.

    Args:
        release: a release file or a stream directory; None as in `release_path`.
        as_of: for streams, the newest batch wanted, by number or label.
        nonnegative: answer counts from their non-negative (biased) estimates where the release has them.

    Raises:
        InterfaceError: none is named.
        ReleaseError: it cannot be opened.
    """
    from dpsql.answer.answerer import Answerer
    from dpsql.release import open_release
    from dpsql.release.read import release_file

    path = release_file(release_path(release), as_of)
    try:
        state = path.stat()
        key = (str(path.resolve()), state.st_mtime_ns, state.st_ino, nonnegative)
    except OSError:
        key = (str(path), 0, 0, nonnegative)
    if key not in _open:
        _open[key] = Answerer(open_release(path, nonnegative=nonnegative))
    return _open[key]


def use(release: ReleasePath) -> None:
    """Make a release the one that is asked when none is named.

    Raises:
        ReleaseError: it cannot be opened.
    """
    answerer(release)
    _default[:] = [Path(release)]


def release_path(release: ReleasePath | None) -> Path:
    """The release meant: the one named, `$DPSQL_RELEASE`, or the one set by `use`.

    Raises:
        InterfaceError: none of them.
    """
    if release is not None:
        return Path(release)
    named = os.environ.get("DPSQL_RELEASE")
    if named:
        return Path(named)
    if _default:
        return _default[0]
    raise InterfaceError(
        "no release is named", hint="pass release=, set DPSQL_RELEASE, or call dpsql.use(path)"
    )
