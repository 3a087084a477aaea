"""diffprivlib: its accountant splits the budget (advanced composition under a delta), its tools count and sum.

It has no filters, joins or customers: numpy selects, the table was joined beforehand. `tools.mean` takes the number of
selected rows as public, which it is not here, so AVG is the quotient of the two.
"""

from __future__ import annotations

from benchmarks.peers.protocol import Answer, Ask, Job, serve


def start(job: Job) -> Ask:
    # user
    import duckdb
    from diffprivlib import BudgetAccountant, tools

    wide = duckdb.sql(
        f"SELECT age, price::DOUBLE AS price, amount::DOUBLE AS amount FROM '{job.folder}/sales.parquet' "
        f"JOIN '{job.folder}/customer.parquet' USING (customer_id) "
        f"JOIN '{job.folder}/product.parquet' USING (product_id)"
    ).fetchnumpy()
    age, price, amount = wide["age"], wide["price"], wide["amount"]
    accountant = BudgetAccountant(job.epsilon, job.delta, slack=job.delta)
    epsilon = accountant.remaining(2 * job.total)[0] * (1 - 1e-9)  # the accountant adds up in floats

    def ask(number: int) -> Answer:
        low, high, cheap, dear = job.boxes[number]
        rows = (age >= low) & (age <= high) & (price >= cheap) & (price <= dear)
        count = tools.count_nonzero(rows, epsilon=epsilon, accountant=accountant)
        total = tools.sum(amount[rows], bounds=(0, 500), epsilon=epsilon, accountant=accountant)
        return Answer((float(count), float(total), float(total) / max(float(count), 1)))

    # end
    return ask


serve(__file__, "diffprivlib", start)
