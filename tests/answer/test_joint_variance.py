"""A view whose axes were measured together: covariances, its place in the release file, error bars, the page."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import pytest

import dpsql
from dpsql.answer import Answerer
from dpsql.doors.report.model import page_model
from dpsql.errors import InternalError
from dpsql.mechanisms.family.plane import product_hats
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.publishing.central import publish_release
from dpsql.release import open_release
from dpsql.star import load_catalog
from dpsql.variance.kronecker import AxisSplit, ProductReading
from dpsql.variance.plane import PlaneReading
from dpsql.variance.reading import piece, reading
from tests.strategies import by_word

pytestmark = pytest.mark.usefixtures("publishes")

MODEL = product_hats(11, 9, 3, 2, 0.4).joint_variance()
SIGMA2 = 2.5
SCRIPT = Path(dpsql.__file__).parent / "doors" / "report" / "page.js"
RANDOM = np.random.default_rng(8)

CATALOG = """
dpsql: 1
name: grid
source: {{kind: parquet, root: "{root}", tables: {{hits: hits.parquet}}}}
privacy: {{lineage: grid, cap: 9, unit: row, epsilon: 1.0, delta: 0}}
tables:
  hits: {{role: fact, columns: {{
    x: {{type: int, lower: 0, upper: 10, out_of_domain: drop}},
    y: {{type: int, lower: 0, upper: 8, out_of_domain: drop}}}}}}
views:
  plane: {{of: hits, axes: [hits.x, hits.y], measures: [count], mechanism: identity}}
"""


def dense(model) -> np.ndarray:
    """Covariance of all cells at unit noise."""
    rows = np.vstack([np.diag(model.leaf.ravel()), model.rows.reshape(len(model.rows), -1)])
    return np.linalg.inv(rows.T @ rows)


def outer(masks) -> np.ndarray:
    return np.einsum("ga,gb->gab", *masks).reshape(len(masks[0]), -1)


def some_masks() -> list[np.ndarray]:
    return [RANDOM.normal(size=(20, n)) for n in MODEL.shape]


def test_covariances_of_a_plane_are_dense_ones():
    left, right, c = some_masks(), some_masks(), dense(MODEL)
    model = PlaneReading((MODEL,), {(0, 1): SIGMA2})
    wanted = SIGMA2 * np.einsum("gi,ij,gj->g", outer(left), c, outer(right))
    assert model.covariance(left, right).noise == pytest.approx(wanted, abs=1e-9)
    assert model.covariance(left, left).noise == pytest.approx(model.covariance(left).noise, abs=1e-9)


@pytest.mark.parametrize("same", [(), (0,), (1,), (0, 1)])
def test_covariances_of_kronecker_sums_are_dense_ones(same: tuple[int, ...]):
    splits = tuple(AxisSplit(by_word(n, "lue_dptree").strategy.variance()) for n in MODEL.shape)
    model = ProductReading(splits, {(): 0.7, (0,): 2.0, (1,): 1.5, (0, 1): 3.0})
    left = some_masks()
    right = [u if i in same else w for i, (u, w) in enumerate(zip(left, some_masks(), strict=True))]
    single = []
    for split, n in zip(splits, MODEL.shape, strict=True):
        eye = np.eye(n)
        pairs = np.array(
            [[split.model.quadratic((eye[i] + eye[j])[None])[0] for j in range(n)] for i in range(n)]
        )
        own = np.diag(pairs) / 4
        c = (pairs - own[:, None] - own[None, :]) / 2
        total = split.total * np.outer(split.spread, split.spread)
        single.append((c - total, np.outer(split.spread, split.spread)))
    wanted = np.zeros(20)
    for part, sigma2 in model.components.items():
        parts = [single[i][0 if i in part else 1] for i in (0, 1)]
        wanted += sigma2 * np.prod(
            [np.einsum("gi,ij,gj->g", u, c, w) for u, c, w in zip(left, parts, right, strict=True)], axis=0
        )
    assert model.covariance(left, right).noise == pytest.approx(wanted, abs=1e-8)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A published view, whose variance model is replaced by the plane's."""
    folder = tmp_path_factory.mktemp("plane")
    duckdb.connect().execute(
        f"COPY (SELECT i % 11 AS x, i % 9 AS y FROM range(3000) t(i)) TO '{folder}/hits.parquet'"
    )
    (folder / "grid.yaml").write_text(CATALOG.format(root=folder))
    noise = ExactNoise(insecure_test_entropy(3))
    path = publish_release(
        load_catalog(folder / "grid.yaml"), folder / "r.dpsql", noise=noise, key=bytes(32)
    ).path
    with duckdb.connect(str(path)) as db:
        meta = {key: json.loads(value) for key, value in db.execute("SELECT key, value FROM meta").fetchall()}
        k = len(meta["models"])
        meta["models"].append(MODEL.kind)
        meta["statistics"][0] |= {"reading": "plane", "models": [k], "components": [[[0, 1], SIGMA2]]}
        for key in ("models", "statistics"):
            db.execute("UPDATE meta SET value = ? WHERE key = ?", [json.dumps(meta[key]), key])
        columns = MODEL.columns()
        names = ", ".join(
            f"{name} {'DOUBLE' if v.dtype.kind == 'f' else 'BIGINT'}" for name, v in columns.items()
        )
        db.execute(f"CREATE TABLE variance_{k} ({names})")
        lines = list(zip(*(values.tolist() for values in columns.values()), strict=True))
        db.execute("CREATE OR REPLACE TABLE measurement_0 (r1 INTEGER, value BIGINT, budget BIGINT)")
        db.executemany(f"INSERT INTO variance_{k} VALUES (?, ?, ?, ?)", lines)
    yield path


X, Y = np.indices(MODEL.shape)
ASKED = {
    "COUNT(*) FROM hits": np.ones(MODEL.shape),
    "COUNT(*) FROM hits WHERE x BETWEEN 2 AND 7 AND y > 3": (X >= 2) & (X <= 7) & (Y > 3),
    "COUNT(*) FROM hits WHERE x < 4 OR y BETWEEN 3 AND 6": (X < 4) | ((Y >= 3) & (Y <= 6)),
    "COUNT(*) FROM hits WHERE (x < 3 AND y < 2) OR (x > 6 AND y > 5) OR x = 5":
        ((X < 3) & (Y < 2)) | ((X > 6) & (Y > 5)) | (X == 5),
    "COUNT(*) FILTER (WHERE x < 5) - 2 * COUNT(*) FILTER (WHERE y < 4) FROM hits": (X < 5) - 2.0 * (Y < 4),
    "COUNT(*) FILTER (WHERE NOT (x > 2 AND y > 2)) FROM hits": ~((X > 2) & (Y > 2)),
}  # fmt: skip


@pytest.mark.parametrize("text", ASKED)
def test_error_bars_of_boxes_are_those_of_the_dense_covariance(release: Path, text: str):
    answerer = Answerer(open_release(release, insecure=True))
    mask = np.asarray(ASKED[text], np.float64).ravel()
    (found,) = answerer.query(f"SELECT {text}").noise_rows[0]
    assert found == pytest.approx(np.sqrt(SIGMA2 * mask @ dense(MODEL) @ mask), rel=1e-9)
    answerer.release.close()


def test_groups_and_ratios_keep_their_covariance(release: Path):
    answerer = Answerer(open_release(release, insecure=True))
    result = answerer.query(
        "SELECT x, COUNT(*) FILTER (WHERE y < 3 OR x = 4) FROM hits GROUP BY x ORDER BY x"
    )
    c = SIGMA2 * dense(MODEL)
    for x, error in enumerate(result.noise_rows):
        mask = ((x == X) & ((Y < 3) | (X == 4))).ravel().astype(float)
        assert error[1] == pytest.approx(np.sqrt(mask @ c @ mask), rel=1e-9)
    ratio = answerer.query("SELECT COUNT(*) FILTER (WHERE x < 5 OR y = 0), COUNT(*) FROM hits")
    share = answerer.query("SELECT COUNT(*) FILTER (WHERE x < 5 OR y = 0) / COUNT(*) FROM hits")
    (above, below), (r,) = ratio.rows[0], share.rows[0]
    tangent = (((X < 5) | (Y == 0)).astype(float) - above / below).ravel() / below
    assert share.noise_rows[0][0] == pytest.approx(np.sqrt(tangent @ c @ tangent), rel=1e-6)
    assert r == pytest.approx(above / below)
    answerer.release.close()


def test_the_page_predicts_what_the_engine_does(release: Path):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node to run the page's script")
    opened = open_release(release, insecure=True)
    model = page_model(opened)
    asked = [{}, {"0": [2, 7]}, {"1": [0, 4]}, {"0": [3, 4], "1": [1, 9]}, {"0": [0, 11], "1": [0, 9]}]
    questions = [{"of": "hits", "measure": "count", "ranges": ranges} for ranges in asked]
    script = (
        "const page = require(process.argv[1]); const [model, asked] = JSON.parse(require('fs').readFileSync(0));"
        "const answer = (q) => [page.predict(model, q).stderr, page.statement(model, q)];"
        "process.stdout.write(JSON.stringify(asked.map(answer)))"
    )
    done = subprocess.run([node, "-e", script, str(SCRIPT)], input=json.dumps([model, questions]),
                          capture_output=True, text=True, timeout=60, check=True)  # fmt: skip
    answerer = Answerer(opened)
    for predicted, text in json.loads(done.stdout):
        assert predicted == pytest.approx(answerer.query(text).stderr_rows[0][0], rel=1e-5), text
    opened.close()


def test_what_no_version_wrote_is_refused():
    again = piece(MODEL.kind, 0, MODEL.columns())
    made = reading("plane", [again], {(0, 1): SIGMA2})
    masks = some_masks()
    wanted = PlaneReading((MODEL,), {(0, 1): SIGMA2}).covariance(masks).noise
    assert made.covariance(masks).noise == pytest.approx(wanted)
    with pytest.raises(InternalError):
        piece("replicates", 4, MODEL.columns())
    with pytest.raises(InternalError):
        reading("replicates", [again], {})
    with pytest.raises(InternalError):
        reading("product", [again], {(0, 1): SIGMA2})
