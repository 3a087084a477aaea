"""The parser's node type under one name: sqlglot has renamed its base class between versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from sqlglot.expressions import Expr as Node
else:
    Node = getattr(exp, "Expr", exp.Expression)

__all__ = ["Node"]
