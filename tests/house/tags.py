"""Where the package asks a value which variant it is, instead of asking the variant.

What counts, outside the variant's own file:

- a comparison (`==`, `!=`, `in`, `is`, a `case` of `match`) of a *tag* with a literal or with a constant of upper-case
  name that stands for some; whether a word is in a table (a dictionary, a registry) tells no variants apart;
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

WORDS_OF_OTHERS = frozenset({
    "BOOLEAN", "DATE", "TIMESTAMP", "VARCHAR", "DOUBLE", "FLOAT", "REAL", "DECIMAL", "TINYINT", "SMALLINT", "INTEGER",
    "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT", "TIME", "TIMESTAMPTZ",
    "TIMESTAMP WITH TIME ZONE",
    "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ_NS",
    "inner", "left", "INNER", "LEFT", "OUTER", "SEMI", "ANTI", "open", "close", "p", "X", "S", "Q", "f",
})  # fmt: skip
"""What SQL calls types and joins, a parser its tokens, PostgreSQL its frames and numpy its dtypes: words of languages
that are read here, not variants that somebody here could give a method."""

FLAGS = ("residual", "together", "settled", "calibrated", "weighted", "method", "shape", "joint")
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
    constants, data = constant_values(package), words_of_data(package)
    seen = Seen(tags, constants, own, data)
    return [found for module in package.modules for found in _in_module(module, seen, registered)]


class Seen(NamedTuple):
    """What is known of the package before its modules are looked at one by one.

    Args:
        tags: tag -> its values.
        constants: upper-case name -> the words and numbers that it stands for.
        own: (tag, value) -> modules that define the variant.
        data: words that say what a column holds.
    """

    tags: dict[str, set[object]]
    constants: dict[str, set[object]]
    own: dict[tuple[str, object], set[str]]
    data: set[object]


def constant_values(package: Package) -> dict[str, set[object]]:
    """Upper-case names of modules -> literals that they stand for; a table or another object stands for none."""
    found: dict[str, set[object]] = defaultdict(set)
    for module in package.modules:
        for node in module.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id.isupper() and isinstance(value, ast.expr):
                if isinstance(value, ast.Call) and identifier(value.func) == "frozenset" and value.args:
                    value = value.args[0]
                found[target.id] |= set(_values(value, {}))
    return found


def words_of_data(package: Package) -> set[object]:
    """The values of `OF_THE_DATA`: a column's types under any name."""
    return {
        value
        for module in package.modules
        for node in module.nodes
        for name, annotation in _annotated(node)
        if name in OF_THE_DATA
        for value in _literals(annotation, {})
    }


def tag_values(package: Package) -> dict[str, set[object]]:
    """Tags and the values that they may have; an empty set where any literal counts."""
    aliases: dict[str, set[object]] = {}
    tags: dict[str, set[object]] = defaultdict(set)
    shared: dict[str, set[object]] = defaultdict(set)
    for module in package.modules:
        for node in module.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.expr):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and _literals(node.value, {}):
                    aliases[target.id] = _literals(node.value, {})
    for module in package.modules:
        for node in module.nodes:
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
        for node in module.nodes:
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


def _in_module(module: Module, seen: Seen, registered: dict[str, set[str]]) -> Iterator[Found]:
    tags = seen.tags

    def at(node: ast.AST, rule: str, tag: str) -> Found:
        return Found(module.place(node), rule, tag, ast.unparse(node).splitlines()[0][:90])

    for node in module.nodes:
        if isinstance(node, ast.Compare):
            for tag in _compared(node, seen, module.name):
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


def _compared(node: ast.Compare, seen: Seen, module: str) -> Iterator[str]:
    tags, sides = seen.tags, [node.left, *node.comparators]
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
            values = [v for v in _values(other, seen.constants) if v not in WORDS_OF_OTHERS | seen.data]
            listed = tags[tag]
            fits = [v for v in values if not listed or v in listed]
            away = [v for v in fits if module not in seen.own.get((tag, v), ())]
            if away:
                yield tag
                break


def _values(node: ast.expr, constants: dict[str, set[object]]) -> list[object]:
    """Literal words and numbers of one side, also those that a constant stands for."""
    if (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str | int)
        and not isinstance(node.value, bool)
    ):
        return [node.value]
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [value for part in node.elts for value in _values(part, constants)]
    return sorted(constants.get(node.id, ()), key=str) if isinstance(node, ast.Name) else []


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
