"""A small star of two views that share an axis, published again and again over one set of cells.

Coverage here is that of the noise, so the catalog measures no rows beyond `max_ids`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb

from dpsql.catalog import Catalog, load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import DrawnRelease, OpenSource, draw_cells
from dpsql.central.content import release_content
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.registry import open_star
from dpsql.executor.engine import ReleaseEngine
from dpsql.mechanisms.distribution import NoisyRows
from dpsql.noise import Noise, ZeroNoise
from dpsql.release import open_release
from tests.strategies import declared_cells

CATALOG = """
dpsql: 1
name: clinic
source: {{kind: parquet, root: "{root}", tables: {{visit: visit.parquet, person: person.parquet}}}}
privacy: {{lineage: clinic, cap: 10, unit: person.id, epsilon: 2.0, delta: 0}}
tables:
  person: {{role: dimension, key: id, private: true, columns: {{
    age: {{type: int, lower: 0, upper: 99, cuts: {{width: 10}}}},
    ward: {{type: string, categories: [a, b, c], nullable: true, out_of_domain: drop}}}}}}
  visit: {{role: fact, foreign_keys: {{id: person}}, max_ids: 3, clipped_share: 0, columns: {{
    cost: {{type: int, lower: 0, upper: 40, measure: true}}, day: {{type: int, lower: 1, upper: 12}}}}}}
views:
  who: {{of: visit, axes: [person.age, person.ward], measures: {{count: 0.5, visit.cost: 0.5}}, share: 0.5}}
  when: {{of: visit, axes: [visit.day, person.ward], measures: {{count: 0.5, visit.cost: 0.5}}, share: 0.5}}
"""

PEOPLE = """
SELECT i AS id, (random() * 99)::INT AS age,
  CASE WHEN random() < .1 THEN NULL ELSE chr(97 + (random() * 2)::INT) END AS ward FROM range(6000) t(i)
"""
VISITS = """
SELECT (random() * 5999)::INT AS id, (random() * 40)::INT AS cost, (1 + random() * 11)::INT AS day FROM range(15000)
"""

Publish = Callable[[Noise, str], ReleaseEngine]


def clinic(folder: Path) -> Publish:
    """Write the star, count it once, and give a function that draws a release and opens it."""
    db = duckdb.connect()
    db.execute("SELECT setseed(0.5)")
    for name, rows in (("person", PEOPLE), ("visit", VISITS)):
        db.execute(f"COPY ({rows}) TO '{folder}/{name}.parquet'")
    file = folder / "clinic.yaml"
    file.write_text(CATALOG.format(root=folder))
    return redrawn(load_catalog(file), folder)


def redrawn(catalog: Catalog, folder: Path) -> Publish:
    """Count a star once, and give a function that draws a release into a folder and opens it."""
    raw = open_star(catalog)
    plan = plan_release(catalog, axis_maker(catalog, raw))
    prepare_tables(catalog, raw, plan)
    scan = OpenSource(catalog, raw, plan, ZeroNoise(), bytes(32))
    cells = {of: declared_cells(scan, of) for of in dict.fromkeys(s.of for s in plan.statistics)}

    def publish(noise: Noise, name: str) -> ReleaseEngine:
        views: dict[int, NoisyRows] = {}
        for of, counted in cells.items():
            views |= draw_cells(scan._replace(noise=noise), of, counted)
        drawn = DrawnRelease(plan, tuple(view for _, view in sorted(views.items())))
        path = folder / name
        release_content(drawn, name, insecure=True).write(path)
        return ReleaseEngine(open_release(path, insecure=True))

    return publish
