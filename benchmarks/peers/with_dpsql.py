"""dpsql: one release of ages by prices, left to `auto`; or, as method `buy`, a release of just these questions."""

from __future__ import annotations

from pathlib import Path
from tempfile import mkdtemp

from benchmarks.peers.protocol import Answer, Ask, Job, serve

# user
CATALOG = """
dpsql: 1
name: shop
source: {{kind: parquet, root: "{job.folder}", tables: {{
  sales: sales.parquet, customer: customer.parquet, product: product.parquet}}}}
privacy: {{lineage: shop, cap: {job.epsilon}, unit: {unit}, epsilon: {job.epsilon}, delta: {job.delta}}}
tables:
  customer: {{role: dimension, key: customer_id, private: true, columns: {{age: {{type: int, lower: 18, upper: 89}}}}}}
  product: {{role: dimension, key: product_id, private: false}}
  sales: {{role: fact, {bound}foreign_keys: {{customer_id: customer, product_id: product}}, columns: {{
    amount: {{type: decimal, scale: 2, lower: 0, upper: 500, measure: true}}}}}}
views:
  demand: {{of: sales, axes: [customer.age, {{axis: product, by: [price]}}], measures: [count, sales.amount]}}
"""
# end


def start(job: Job) -> Ask:
    """Publish, or buy."""
    folder = Path(mkdtemp(dir=job.folder))
    customers = job.unit == "customer"
    bound = "max_ids: auto, " if customers else ""
    # user
    import dpsql

    catalog, release = folder / "shop.yaml", folder / "shop.dpsql"
    catalog.write_text(
        CATALOG.format(job=job, unit="customer.customer_id" if customers else "row", bound=bound)
    )
    if job.method == "buy":
        dpsql.buy(catalog, list(job.statements), release, epsilon=str(job.epsilon))
    else:
        dpsql.publish(catalog, release)

    def ask(number: int) -> Answer:
        result = dpsql.query(job.statements[number], release=release)
        values = [None if value is None else float(value) for value in result.rows[0]]
        if job.method == "fast":
            return Answer(values)
        lows, highs = result.interval_rows(0.95)
        return Answer(values, (), [lows[0], highs[0]])

    # end
    return ask


serve(__file__, "dpsql", start)
