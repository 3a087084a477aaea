"""The form of a scalar expression over noisy columns: which linear combination or ratio it is."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.answer.block import Form, Known
from dpsql.answer.forms import added, constant, divided, is_constant, multiplied, scaled
from dpsql.answer.sql.refuse import refusal
from dpsql.errors import ProgrammingError
from dpsql.sql.node import Node

CALLS = {
    "dp_stderr": "stderr", "dp_interval_low": "low", "dp_interval_high": "high", "dp_bias_hint": "bias",
    "dp_model_bound": "model",
}  # fmt: skip
DEFAULT_LEVEL = 0.95
NUMERIC = ("INT", "DOUBLE", "FLOAT", "DECIMAL", "REAL")


def form_of(node: Node, forms: Mapping[str, Form]) -> Form | None:
    """The form of an expression.

    Args:
        node: an expression over columns.
        forms: column (`name` or `table.name`, lower case) -> form.

    Returns:
        Its form; None where its error is not defined. A rounding or an integer cast is taken as exact.
    """
    if isinstance(node, (exp.Paren, exp.Alias)):
        return form_of(node.this, forms)
    if isinstance(node, exp.Column):
        return forms.get(f"{node.table}.{node.name}".lower() if node.table else node.name.lower())
    if isinstance(node, exp.Literal):
        return None if node.is_string else constant(float(node.this))
    if isinstance(node, exp.Neg):
        inner = form_of(node.this, forms)
        return None if inner is None or isinstance(inner, Known) else scaled(inner, -1.0)
    if isinstance(node, exp.Cast):
        numeric = any(kind in node.to.sql(dialect="duckdb").upper() for kind in NUMERIC)
        return form_of(node.this, forms) if numeric else None
    if isinstance(node, (exp.Coalesce, exp.Round)):
        return form_of(node.this, forms)
    if isinstance(node, exp.Nullif):
        return form_of(node.this, forms) if is_constant(form_of(node.expression, forms)) else None
    if isinstance(node, exp.Binary):
        return _binary(node, form_of(node.left, forms), form_of(node.right, forms))
    return None


def _binary(node: exp.Binary, left: Form | None, right: Form | None) -> Form | None:
    if isinstance(node, exp.Add):
        return added(left, right)
    if isinstance(node, exp.Sub):
        return added(left, right, -1.0)
    if isinstance(node, exp.Mul):
        return multiplied(left, right)
    if isinstance(node, exp.Div):
        return divided(left, right)
    return None


def error_call(node: exp.Anonymous) -> tuple[str, Node, float]:
    """What a DP_ function asks: (what, of which expression, at which level).

    Raises:
        ProgrammingError: an unknown DP_ function, a wrong number of arguments, a level out of (0, 1).
    """
    name = str(node.this).lower()
    if name not in CALLS:
        raise refusal(
            ProgrammingError,
            f"there is no function {name.upper()}",
            at=node,
            clause="SELECT",
            hint=f"there are {', '.join(call.upper() for call in CALLS)}",
        )
    arguments = node.expressions
    most = 2 if name.startswith("dp_interval") else 1
    if not 1 <= len(arguments) <= most:
        takes = "an aggregate" if most == 1 else "an aggregate and a level"
        raise refusal(
            ProgrammingError,
            f"{name.upper()} takes {takes}",
            at=node,
            clause="SELECT",
            nearest=f"SELECT {name.upper()}(COUNT(*)) FROM ..",
        )
    level = DEFAULT_LEVEL
    if len(arguments) == 2:
        given = arguments[1]
        level = float(given.this) if isinstance(given, exp.Literal) and not given.is_string else 0.0
        if not 0 < level < 1:
            raise refusal(
                ProgrammingError,
                "an interval's level lies between 0 and 1",
                at=node,
                clause="SELECT",
                hint="for instance 0.95",
            )
    return CALLS[name], arguments[0], level
