"""The files that a place of a source stands for: one file, a pattern, or a folder with partitions.

    sales.parquet           a file below the root
    sales/*.parquet         a pattern; * and ? end at a folder, ** does not
    sales                   a folder: every file below it whose ending says that it can be read
    sales/year=2025/..      folders named so give a column `year`, as text: a type guessed from names would be guessed
                            from rows

Files are listed once, when a source is opened, and in order of their names. What begins with a dot or an underscore is
a writer's own and passed over.

**Privacy**: names of files alone.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

PATTERN = "*?["


def files_of(root: Path, place: str, endings: Collection[str]) -> tuple[Path, ...]:
    """The files of a place, sorted.

    Args:
        root: where relative places begin.
        place: as the catalog writes it, variables put in.
        endings: of the files that a folder is read for, in lower case.

    Returns:
        None where there is no such thing.
    """
    file = root / place
    if file.is_dir():
        return tuple(sorted(path for path in file.rglob("*") if _is_data(path, file, endings)))
    if file.exists() or not any(mark in place for mark in PATTERN):
        return (file,) if file.exists() else ()
    pattern = Path(place)
    base = Path(pattern.anchor) if pattern.is_absolute() else root
    relative_pattern = pattern.relative_to(pattern.anchor) if pattern.is_absolute() else pattern
    return tuple(sorted(path for path in base.glob(str(relative_pattern)) if path.is_file()))


def _is_data(file: Path, folder: Path, endings: Collection[str]) -> bool:
    names = file.relative_to(folder).parts
    return file.suffix.lower() in endings and file.is_file() and not any(name[0] in "._" for name in names)
