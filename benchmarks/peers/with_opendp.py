"""OpenDP: its Context over a Polars frame that was joined beforehand; each question gets an equal part.

| method | |
|---|---|
| questions | COUNT and SUM of each box; under a delta zCDP. The scale of noise is searched once, not for each |
| cells | all cells of age and price once; a box is the sum of its cells, which the user adds up |
"""

from __future__ import annotations

from benchmarks.peers.protocol import Answer, Ask, Job, rho, serve


def start(job: Job) -> Ask:
    return _cells(job) if job.method == "cells" else _questions(job)


def _questions(job: Job) -> Ask:
    # user
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    customer, product = (pl.scan_parquet(f"{job.folder}/{name}.parquet") for name in ("customer", "product"))
    wide = (
        pl.scan_parquet(f"{job.folder}/sales.parquet").join(customer, on="customer_id").join(product, on="product_id")
        .select("customer_id", "age", pl.col("price").cast(pl.Float64), (pl.col("amount") * 100).cast(pl.Int64))
        .collect()
    )  # fmt: skip
    customers = job.unit == "customer"
    unit = dp.unit_of(contributions=1, identifier=pl.col("customer_id") if customers else None)
    loss = dp.loss_of(rho=rho(job.epsilon, job.delta)) if job.delta else dp.loss_of(epsilon=job.epsilon)
    context = dp.Context.compositor(
        data=wide.lazy(), privacy_unit=unit, privacy_loss=loss, split_evenly_over=job.total,
        margins=[dp.polars.Margin(max_length=10_000_000)],
    )  # fmt: skip

    empty, spaces = pl.LazyFrame(schema=wide.schema), context.accountant
    asked = (dp.len(signed=True), pl.col("amount").dp.sum((0, 50_000)))
    first = context.query().truncate_per_group(job.rows) if customers else context.query()
    told = first.select(*asked).summarize()  # finds the scale by search; all questions have the same
    scales, scale = told["scale"], told["scale"][0] * (1 + 1e-9)
    if job.delta:  # its own widths of Gaussian noise are summed term by term, and do not end for a customer's
        widths = [1.96 * each for each in scales]
    else:
        widths = [dp.discrete_laplacian_scale_to_accuracy(each, 0.05) for each in scales]
    halves = widths[0], widths[1] / 100

    def ask(number: int) -> Answer:
        low, high, cheap, dear = job.boxes[number]
        rows = empty.filter(
            (pl.col("age") >= low) & (pl.col("age") <= high) & (pl.col("price") >= cheap) & (pl.col("price") <= dear)
        )  # fmt: skip
        if customers:
            rows = rows.filter(pl.int_range(pl.len()).shuffle().over("customer_id") < job.rows)
        plan = rows.select(*asked)
        measurement = dp.m.make_private_lazyframe(
            spaces.input_domain, spaces.input_metric, spaces.output_measure, plan, global_scale=scale
        )
        count, cents = context(measurement).collect().row(0)
        return Answer((count, cents / 100, cents / 100 / max(count, 1)), halves)

    # end
    return ask


def _cells(job: Job) -> Ask:
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    customer, product = (pl.scan_parquet(f"{job.folder}/{name}.parquet") for name in ("customer", "product"))
    wide = (
        pl.scan_parquet(f"{job.folder}/sales.parquet").join(customer, on="customer_id").join(product, on="product_id")
        .select("age", (pl.col("price") * 100).cast(pl.Int64), (pl.col("amount") * 100).cast(pl.Int64))
        .collect()
    )  # fmt: skip
    loss = dp.loss_of(rho=rho(job.epsilon, job.delta)) if job.delta else dp.loss_of(epsilon=job.epsilon)
    context = dp.Context.compositor(
        data=wide.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=loss, split_evenly_over=1,
        margins=[dp.polars.Margin(by=["age", "price"], max_length=10_000_000, max_groups=7200)],
    )  # fmt: skip
    ages, prices = pl.DataFrame({"age": range(18, 90)}), pl.DataFrame({"price": range(499, 50_000, 500)})
    keys = ages.join(prices, how="cross").cast(pl.Int64).lazy()
    noisy = (
        context.query()
        .group_by("age", "price")
        .agg(dp.len(signed=True), pl.col("amount").dp.sum((0, 50_000)))
    )
    cells = noisy.with_keys(keys).release().collect()

    def ask(number: int) -> Answer:
        low, high, cheap, dear = job.boxes[number]
        box = cells.filter(
            (pl.col("age") >= low) & (pl.col("age") <= high)
            & (pl.col("price") >= round(100 * cheap)) & (pl.col("price") <= round(100 * dear))
        )  # fmt: skip
        count, total = int(box["len"].sum()), int(box["amount"].sum()) / 100
        return Answer((count, total, total / max(count, 1)))

    return ask


serve(__file__, "opendp", start)
