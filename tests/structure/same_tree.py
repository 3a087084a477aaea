"""Whether modules differ from a revision in nothing but identifiers and docstrings.

    python -m tests.structure.same_tree REVISION        names the modules that differ in more

What a commit that renames must pass. Names of arguments at calls, of attributes and of imports are identifiers too, and
so is the sorted list `__all__`; types, constants, order and nesting are not.
"""

from __future__ import annotations

import ast
import subprocess
import sys

from tests.structure.source import ROOT

FIELDS = {"id", "arg", "attr", "name", "asname", "module", "names", "kwd_attrs", "rest"}
"""Where a syntax tree keeps identifiers."""


def skeleton(text: str) -> str:
    """A module's syntax tree without identifiers and docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            node.names = []
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            body[0] = ast.Pass()
    tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) or _lists_names(node))]
    return _dumped(tree)


def _lists_names(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _dumped(node: object, field: str = "") -> str:
    if isinstance(node, ast.AST):
        fields = ",".join(_dumped(value, name) for name, value in ast.iter_fields(node))
        return f"{type(node).__name__}({fields})"
    if isinstance(node, list):
        return "[" + ",".join(_dumped(value, field) for value in node) + "]"
    return "_" if field in FIELDS and isinstance(node, str) else repr(node)


def differing(revision: str) -> list[str]:
    """Modules of the package that differ from a revision in more than identifiers, or are in one of both alone."""
    listed = subprocess.run(
        ["git", "ls-tree", "-r", "--name-only", revision, "dpsql"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    before = {name for name in listed if name.endswith(".py")}
    now = {str(path.relative_to(ROOT)) for path in (ROOT / "dpsql").rglob("*.py")}
    differ = sorted(before ^ now)
    for name in sorted(before & now):
        text = subprocess.run(
            ["git", "show", f"{revision}:{name}"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        if skeleton(text) != skeleton((ROOT / name).read_text(encoding="utf-8")):
            differ.append(name)
    return differ


if __name__ == "__main__":
    modules = differing(sys.argv[1])
    print("\n".join(modules) or "the same but for identifiers and docstrings")
    sys.exit(bool(modules))
