"""The release file: what is published, and the only thing that analysts ever open.

`format` names the tables and their meaning, `write` makes a fresh file, `read` opens one locked down.
"""

from dpsql.release.format import FORMAT, AxisMeta, ColumnMeta, StatisticMeta
from dpsql.release.read import Release, open_release

__all__ = ["FORMAT", "AxisMeta", "ColumnMeta", "Release", "StatisticMeta", "open_release"]
