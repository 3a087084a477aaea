"""`dpsql.Catalog`: a catalog as a typed object, drafted from data frames.

The model is the YAML file's: `to_yaml` writes it, `dpsql.catalog.load_catalog` reads it back to an equal one. Frames
are not part of it; `publish` and `plan` are given them.

**Privacy**: `from_frames` reads raw rows, as `dpsql init` does; what it read is marked, and publishing refuses while a
mark is left.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import Self

import yaml
from pydantic import PrivateAttr

from dpsql import catalog as star
from dpsql.catalog.source import PARQUET
from dpsql.curator.confirm import (
    PROMISE,
    ConfirmedTable,
    Mark,
    append_record,
    confirm_tables,
    groups_of,
    open_marks,
)
from dpsql.curator.design import design_catalog
from dpsql.curator.draft import CuratorChoices, draft
from dpsql.curator.draft.profile import SourceFiles
from dpsql.engines.frames import Frames, framed, written_frames
from dpsql.errors import InterfaceError


class Catalog(star.Catalog):
    """A catalog: whose rows, which tables, columns, views and budget. Its fields are the keys of the YAML file."""

    _confirmed: tuple[tuple[str, ConfirmedTable], ...] = PrivateAttr(default=())

    @classmethod
    def from_frames(
        cls,
        frames: Frames,
        *,
        unit: str,
        public: Collection[str] = (),
        name: str = "frames",
        epsilon: str | None = None,
        cap: str | None = None,
        workload: Sequence[str] = (),
    ) -> Self:
        """Draft a catalog from data frames, as `dpsql init` does from files.

        Args:
            frames: table -> a data frame of pandas or polars, a table of pyarrow, or a relation of DuckDB.
            unit: whose privacy: `table.key` of the people's table, or `row`.
            public: tables whose rows anybody may see.
            name: of the catalog.
            epsilon: what one release spends, as text. Without it the promise is marked too.
            cap: most that these people may ever lose, as text.
            workload: statements to design the views for; without them each table gets first views.

        Returns:
            A catalog whose `marks` name every bound that was read from private rows; `confirm` takes them off.

        Raises:
            InterfaceError: a frame is no table, a column of it has no one type, or the unit is no unique column.

        **Privacy**: reads raw rows and shows bounds of them to the curator, before any promise is made.
        """
        choices = CuratorChoices(unit, frozenset(public), epsilon, cap)
        with written_frames(frames) as source:
            with closing(SourceFiles(PARQUET, source.root, source.tables)) as reader:
                text = draft(name, reader, lambda _: choices, tuple(workload)).text
            if workload:
                text = design_catalog(text, Path(source.root) / "frames.yaml", workload, None).text
        return cls.model_validate(json.loads(star.parse_catalog(text, name).to_json()))

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Values read from private rows that wait for confirmation."""
        return open_marks(self)

    def confirm(self, *, by: str, rounder: bool = False, tables: Collection[str] | None = None) -> Self:
        """The catalog without the marks of some tables: somebody has looked at their bounds.

        Args:
            by: who says so.
            rounder: take the rounder bounds where there are some.
            tables: which tables, `privacy` for the promise; every table but not the promise unless given.

        Raises:
            InterfaceError: nobody is named, or a table has no mark.
            CatalogError: a rounder bound does not fit the rest.
        """
        tables = [group for group in groups_of(self.marks) if group != PROMISE] if tables is None else tables
        if not by.strip():
            raise InterfaceError("the person who confirms is not named", hint="pass by=NAME")
        text, confirmed = confirm_tables(self.to_yaml(), dict.fromkeys(tables, rounder))
        bare = self.model_validate(json.loads(star.parse_catalog(text, self.name).to_json()))
        catalog = bare.model_copy(update={"source": self.source, "ledger": self.ledger})
        catalog._confirmed = (*self._confirmed, *((by, table) for table in confirmed))
        return catalog

    def to_yaml(self) -> str:
        """The catalog as the text of a YAML file; its source, where it has one, is left out."""
        content = json.loads(self.to_json())
        return yaml.safe_dump(
            content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110
        )

    def write(self, file: str | Path) -> Path:
        """Write the YAML file, and next to it who confirmed what.

        Args:
            file: what to write; must not exist.

        Raises:
            InterfaceError: it exists.
        """
        path = Path(file)
        if path.exists():
            raise InterfaceError(f"{path} exists", hint="choose another file, or remove it")
        text = self.to_yaml()
        path.write_text(text, encoding="utf-8")
        append_record(path, self._confirmed, text)
        return path


@contextmanager
def curated(
    catalog: star.Catalog | str | PathLike[str],
    frames: Frames | None,
    ledger: str | PathLike[str] | None = None,
) -> Iterator[star.Catalog]:
    """A catalog object, or the one that a YAML file holds, over data frames or its own source, while the block runs.

    Args:
        catalog: the object, or the file.
        frames: as for `framed`.
        ledger: the ledger's file, where it is not the catalog's.
    """
    if not isinstance(catalog, star.Catalog):
        catalog = star.load_catalog(Path(catalog), ledger)
    elif ledger is not None:
        catalog = catalog.model_copy(update={"ledger": str(Path(ledger).absolute())})
    with framed(catalog, frames) as over_frames:
        yield over_frames
