"""Labels are kept to the byte from the source to the answer; names and numbers alone may lose blanks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsql.axis.build import CategoryRule
from dpsql.catalog import Catalog, load_catalog, parse_catalog
from dpsql.catalog.catalog import catalog_from_json
from dpsql.catalog.graph import view_axes
from dpsql.catalog.model import View
from dpsql.central.axes import axis_maker
from dpsql.curator.design.axes import quoted
from dpsql.curator.draft import draft_from_source, leave_open
from dpsql.engines.duck import no_sources
from dpsql.errors import CatalogError
from dpsql.noise import ZeroNoise
from tests.releases import published
from tests.thinned import by_default

pytestmark = pytest.mark.long

BLANKS = " \t\u00a0\u2003\u2028\u0085\ufeff"
TEXT = st.text(
    st.one_of(st.sampled_from(BLANKS + "\"'\\,:#&*[]{}|>-?!%@`~"), st.characters(blacklist_categories=("Cs",))),
    max_size=12,
).filter(lambda text: "\0" not in text)  # fmt: skip
FEW = settings.default.max_examples if settings.default.max_examples > 30 else 8
"""Drafts of the default suite; each takes a fifth of a second."""
WORDS = [
    "null", "~", "true", "Yes", "1", "1.0", "-", "- a", "a: b", "# x", "2026-01-01", "!!str x", "", "&a", "*a",
    "<<"
]  # fmt: skip


def drafted(source: Path, output: Path) -> Catalog:
    """A catalog as it is loaded from a draft whose marks were removed."""
    draft_from_source(source, output, "shop", leave_open)
    text = output.read_text(encoding="utf-8")
    output.write_text(re.sub(r", confirm: true|(?m:^ *confirm: true\n)", "", text), encoding="utf-8")
    return load_catalog(output)


def drafted_labels(labels: list[str], rows_of: str) -> None:
    """Assert that a column of these labels is drafted, loaded and resolved as it is."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "raw").mkdir()
        with duckdb.connect() as connection:
            connection.execute("CREATE TABLE t (kind VARCHAR, age INTEGER)")
            connection.executemany(
                "INSERT INTO t VALUES (?, ?)", [(label, i) for i, label in enumerate(labels)]
            )
            connection.execute("INSERT INTO t SELECT t.* FROM t, range(50)")
            connection.execute(f"COPY t TO '{folder}/raw/t.{rows_of}' (FORMAT {rows_of})")
        catalog = drafted(folder / "raw", folder / "shop.yaml")
        column = catalog.tables["t"].columns["kind"]
        assert sorted(map(str.encode, column.categories)) == sorted(map(str.encode, labels))
        raw = no_sources()
        (axis,) = view_axes(
            catalog, View.model_validate({"of": "t", "axes": ["t.kind"], "measures": ["count"]})
        )
        rule = axis_maker(catalog, raw)(axis).rule
        raw.close()
        assert isinstance(rule, CategoryRule) and rule.values == column.categories
        again = catalog_from_json(json.dumps(json.loads(catalog.to_json())))
        assert again.tables["t"].columns["kind"].categories == column.categories


@settings(max_examples=FEW)
@given(st.lists(TEXT, min_size=1, max_size=8, unique_by=str.strip))
@example(
    [
        " Private",
        "\tState-gov",
        "\u00a0Federal",
        "Local\u2028",
        "x\u0085y",
        "\ufeffz",
        "😀 ",
        'say "no"',
        "back\\slash",
    ]
)
@example(WORDS)
def test_a_draft_resolves_to_the_labels_of_the_file_byte_for_byte(labels: list[str]) -> None:
    drafted_labels(labels, "parquet")


@settings(max_examples=FEW)
@given(st.lists(TEXT, min_size=1, max_size=8, unique_by=str.strip))
@example([" Private", " Self-emp", "\tState-gov", "\u00a0Federal"])
def test_so_does_the_draft_of_a_csv_file(labels: list[str]) -> None:
    """A field holds no line end, and an empty one is NULL."""
    written = [label for label in labels if label and not set(label) & set("\r\n")]
    drafted_labels([*written, "and a text"] if "and a text" not in written else written, "csv")


@given(TEXT)
@example("\U000e0001")
def test_a_quoted_scalar_is_read_back(text: str) -> None:
    import yaml

    assert yaml.load(f"{{key: [{quoted(text)}], {quoted(text)}: 1}}", yaml.BaseLoader)["key"] == [text]


CATALOG = """
dpsql: 1
name: shop
source: {root: raw, tables: {t: t.parquet}}
privacy: {lineage: shop, cap: 1, unit: row, epsilon: 1}
tables: {t: {role: fact, columns: {kind: {type: string, categories: CATEGORIES}}}}
views: {kinds: {of: t, axes: [t.kind]}}
"""


@pytest.mark.parametrize("categories", ['["a", " a"]', '[b, "a\\t", a]', '["\\u00a0a", a]', '["", " "]'])
def test_labels_that_differ_in_blanks_alone_are_refused_by_name(categories: str) -> None:
    with pytest.raises(
        CatalogError, match=r"the categories '.*' and '.*' differ in blanks alone; trim"
    ) as raised:
        parse_catalog(CATALOG.replace("CATEGORIES", categories))
    assert "t.columns.kind" in str(raised.value)


def test_words_of_a_dialect_keys_and_column_names_keep_their_blanks() -> None:
    text = CATALOG.replace("CATEGORIES", '[" a"]').replace("root: raw,", 'root: raw, csv: {null: " NA"},')
    text = (
        text.replace("kind:", '" kind":')
        .replace("t.kind", '"t. kind"')
        .replace("role: fact,", 'role: fact, key: " id",')
    )
    catalog = parse_catalog(text)
    assert catalog.raw_source().csv.null == " NA"
    assert (catalog.tables["t"].key, list(catalog.tables["t"].columns)) == (" id", [" kind"])
    numbers = text.replace('type: string, categories: [" a"]', 'type: int, lower: " 1", upper: "9 "')
    assert parse_catalog(numbers).tables["t"].columns[" kind"].bounds == (1, 9), "numbers lose theirs"


def test_a_draft_leaves_such_a_column_out(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "t.csv").write_text("kind,age\n a,1\na,2\n" * 60, encoding="utf-8")
    catalog = drafted(tmp_path / "raw", tmp_path / "shop.yaml")
    assert set(catalog.tables["t"].columns) == {"age"}
    assert "kind (texts that differ in blanks alone" in (tmp_path / "shop.yaml").read_text(encoding="utf-8")


@pytest.mark.usefixtures("publishes")
@pytest.mark.parametrize("header", by_default(["age,workclass", "age, workclass"], 1))
def test_all_rows_of_a_file_with_blanks_behind_its_commas_count(tmp_path: Path, header: str) -> None:
    kinds = [" Private", " State-gov", " ?"]
    lines = [f"{20 + i % 50},{kinds[i % 3]}" for i in range(5_000)]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "people.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    catalog = drafted(tmp_path / "raw", tmp_path / "people.yaml")
    answerer = published(catalog.file, ZeroNoise())
    column = header.split(",")[1]
    result = answerer.query(f'SELECT "{column}", COUNT(*) FROM people GROUP BY 1 ORDER BY 1')
    counts = {str(kind): float(count) for kind, count in result.rows if kind is not None and count}
    assert {kind: counts[kind] for kind in kinds} == {" Private": 1667, " State-gov": 1667, " ?": 1666}
    assert sum(counts.values()) == 5_000
