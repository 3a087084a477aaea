"""Where the package asks a value which variant it is, instead of asking the variant.

What counts, outside the variant's own file:

- a comparison (`==`, `!=`, `in`, `is`, a `case` of `match`) of a *tag* with a literal or with a constant of upper-case
  name that stands for one;
- a truth test or `is None` of a *flag*: a nullable or yes/no field that tells one variant from another;
- `isinstance`, or a `case`, on a *registered* class;
- a dictionary display with two or more keys that are all values of one tag.

A **tag** is: a field or name whose annotation holds `Literal["a", ..]`, or an alias of one; a class-level
constant to which two classes give different strings (`kind = "tents"`); and `NAMES`, which hold one of
several words or numbers although their annotation says `str` or `int`; `OF_THE_DATA` are none. Where a tag's
annotation lists values, only comparisons with these count: a column's `type` is a tag, the type of something
else is not. `FLAGS` are the fields of `PlannedStatistic` that only some statistics have.

A class is **registered** if it implements a Protocol of the package: it has all its members, two or more.

The variant's own file is the one that defines the class whose class-level constant is the literal, or the registered
class itself.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tests.house.source import Module, Package, identifier

NAMES = ("kind", "norm", "mechanism", "method", "strategy", "oracle", "bounding", "trust", "currency", "neighbours",
         "max_ids", "tau", "unit")  # fmt: skip
"""Tags by use: they are compared with words or numbers that name a variant."""

OF_THE_DATA = ("type", "grain")
"""Words that say what a column holds; they choose no mechanism, and there is no variant that could be asked instead."""

FLAGS = ("hats", "residual", "together", "settled", "calibrated", "weighted", "method", "shape", "joint")
"""Fields that only some variants have, or that say which variant it is."""


class Found(NamedTuple):
    """One place where a variant is told apart."""

    place: str
    rule: str
    tag: str
    text: str


def questions(package: Package) -> list[Found]:
    """Every place of the package that counts, in the order of files."""
    tags, own, registered = tag_values(package), own_files(package), registered_classes(package)
    return [found for module in package.modules for found in _in_module(module, tags, own, registered)]


def tag_values(package: Package) -> dict[str, set[object]]:
    """Tags and the values that they may have; an empty set where any literal counts."""
    aliases: dict[str, set[object]] = {}
    tags: dict[str, set[object]] = defaultdict(set)
    shared: dict[str, set[object]] = defaultdict(set)
    for module in package.modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.expr):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and _literals(node.value, {}):
                    aliases[target.id] = _literals(node.value, {})
    for module in package.modules:
        for node in ast.walk(module.tree):
            for name, annotation in _annotated(node):
                tags[name] |= _literals(annotation, aliases)
    for name, value in own_files(package):
        shared[name].add(value)
    for name, values in shared.items():
        tags[name] |= values if len(values) > 1 else set()
    found = {name: values for name, values in tags.items() if values and name not in OF_THE_DATA}
    return {**found, **{name: found.get(name, set()) if name not in NAMES else set() for name in NAMES}}


def _annotated(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, node.annotation
    if isinstance(node, ast.arg) and node.annotation is not None:
        yield node.arg, node.annotation


def _constants(node: ast.AST) -> Iterator[tuple[str, object, str]]:
    """Class-level constants: name, value, class. Defaults of annotated fields are none, unless they are ClassVar."""
    if not isinstance(node, ast.ClassDef):
        return
    for part in node.body:
        plain = isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name)
        fixed = isinstance(part, ast.AnnAssign) and "ClassVar" in ast.dump(part.annotation)
        if (plain or fixed) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, str):  # type: ignore[attr-defined]
            target = part.targets[0] if isinstance(part, ast.Assign) else part.target  # type: ignore[attr-defined]
            yield target.id, part.value.value, node.name  # type: ignore[attr-defined]


def _literals(annotation: ast.expr, aliases: dict[str, set[object]]) -> set[object]:
    """Values inside `Literal[..]` of an annotation, aliases followed."""
    values: set[object] = set()
    for node in ast.walk(annotation):
        if isinstance(node, ast.Subscript) and identifier(node.value) == "Literal":
            values |= {part.value for part in ast.walk(node.slice) if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.Name):
            values |= aliases.get(node.id, set())
    return values


def own_files(package: Package) -> dict[tuple[str, object], set[str]]:
    """The modules that define a variant, by tag and value."""
    files: dict[tuple[str, object], set[str]] = defaultdict(set)
    for module in package.modules:
        for node in ast.walk(module.tree):
            for name, value, _ in _constants(node):
                files[name, value].add(module.name)
    return files


def registered_classes(package: Package) -> dict[str, set[str]]:
    """Classes that implement one of the package's Protocols, and the modules that define them."""
    classes = [(m.name, n) for m in package.modules for n in m.tree.body if isinstance(n, ast.ClassDef)]
    protocols = [_members(node) for _, node in classes if _is_protocol(node)]
    found: dict[str, set[str]] = defaultdict(set)
    for module, node in classes:
        held = _members(node)
        if not _is_protocol(node) and any(len(p) >= 2 and p <= held for p in protocols):
            found[node.name].add(module)
    return found


def _is_protocol(node: ast.ClassDef) -> bool:
    return any(identifier(b.value if isinstance(b, ast.Subscript) else b) == "Protocol" for b in node.bases)


def _members(node: ast.ClassDef) -> set[str]:
    names = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
    fields = {
        p.target.id for p in node.body if isinstance(p, ast.AnnAssign) and isinstance(p.target, ast.Name)
    }
    return {name for name in names | fields if not name.startswith("__")}


def _in_module(
    module: Module,
    tags: dict[str, set[object]],
    own: dict[tuple[str, object], set[str]],
    registered: dict[str, set[str]],
) -> Iterator[Found]:
    constants = _module_constants(module)

    def at(node: ast.AST, rule: str, tag: str) -> Found:
        return Found(module.place(node), rule, tag, ast.unparse(node).splitlines()[0][:90])

    for node in ast.walk(module.tree):
        if isinstance(node, ast.Compare):
            for tag in _compared(node, tags, constants, own, module.name):
                yield at(node, "comparison", tag)
        elif isinstance(node, ast.Call) and identifier(node.func) == "isinstance" and len(node.args) == 2:
            names = {identifier(part) for part in ast.walk(node.args[1]) if isinstance(part, ast.expr)}
            for name in sorted(names & registered.keys()):
                if module.name not in registered[name]:
                    yield at(node, "isinstance", name)
        elif isinstance(node, ast.Match):
            yield from _cases(node, tags, registered, at)
        elif isinstance(node, ast.Dict):
            keys = {k.value for k in node.keys if isinstance(k, ast.Constant)}
            if len(keys) >= 2 and len(keys) == len(node.keys):
                for tag in [
                    t for t, values in tags.items() if t not in FLAGS and len(values) > 1 and keys <= values
                ][:1]:
                    yield at(node, "dictionary", tag)
        for test in _tests(node):
            flag = identifier(test)
            if flag in FLAGS and isinstance(test, ast.Attribute):
                yield at(test, "flag", flag)


def _module_constants(module: Module) -> set[str]:
    """Upper-case names: a comparison with one is a comparison with the word or number that it stands for."""
    return {
        n.id for n in ast.walk(module.tree) if isinstance(n, ast.Name) and n.id.isupper() and len(n.id) > 1
    }


def _compared(
    node: ast.Compare,
    tags: dict[str, set[object]],
    constants: set[str],
    own: dict[tuple[str, object], set[str]],
    module: str,
) -> Iterator[str]:
    sides = [node.left, *node.comparators]
    for left, operator, right in zip(sides, node.ops, sides[1:], strict=False):
        if not isinstance(operator, ast.Eq | ast.NotEq | ast.In | ast.NotIn | ast.Is | ast.IsNot):
            continue
        for asked, other in ((left, right), (right, left)):
            tag = identifier(asked)
            nullable = isinstance(operator, ast.Is | ast.IsNot)
            if nullable and tag in FLAGS and isinstance(asked, ast.Attribute | ast.Name):
                yield tag
                break
            if nullable or tag not in tags or (isinstance(asked, ast.Name) and asked.id.isupper()):
                continue
            values = _values(other, constants)
            listed = tags[tag]
            fits = [v for v in values if not listed or v in listed or v is ...]
            away = [v for v in fits if module not in own.get((tag, v), ())]
            if away:
                yield tag
                break


def _values(node: ast.expr, constants: set[str]) -> list[object]:
    """Literal words and numbers of one side; `...` for a constant by name."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str | int)
        and not isinstance(node.value, bool)
    ):
        return [node.value]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [value for part in node.elts for value in _values(part, constants)]
    return [...] if isinstance(node, ast.Name) and node.id in constants else []


def _tests(node: ast.AST) -> Iterator[ast.expr]:
    """Expressions whose truth is asked."""
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield _bare(node.test)
    elif isinstance(node, ast.BoolOp):
        yield from (_bare(value) for value in node.values)
    elif isinstance(node, ast.comprehension):
        yield from (_bare(test) for test in node.ifs)


def _bare(test: ast.expr) -> ast.expr:
    return _bare(test.operand) if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test


def _cases(node, tags, registered, at) -> Iterator[Found]:  # type: ignore[no-untyped-def]
    tag = identifier(node.subject)
    for case in node.cases:
        for pattern in ast.walk(case.pattern):
            if isinstance(pattern, ast.MatchValue) and tag in tags:
                yield at(pattern, "case", tag)
            if isinstance(pattern, ast.MatchClass) and identifier(pattern.cls) in registered:
                yield at(pattern, "case", identifier(pattern.cls))
