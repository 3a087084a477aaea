"""A batch a day into a stream, then its tables for whoever reads Parquet: one DAG of Airflow 3.

A task that is run again with the same date charges nothing twice and draws nothing again, so retries are safe. The
stream's catalog, the rows and the ledger lie on the machine that runs the tasks; the tables may go anywhere.
"""

from __future__ import annotations

import pendulum
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

STREAM, CATALOG, TABLES = "/srv/dpsql/days.dpsql", "/etc/dpsql/days.yaml", "/srv/dpsql/tables"

with DAG(
    "dpsql_daily",
    schedule="0 2 * * *",
    start_date=pendulum.datetime(2025, 1, 2, tz="UTC"),
    catchup=True,  # a day that was missed is appended late, in its order
    max_active_runs=1,  # batches come one after another
    default_args={"retries": 5, "retry_delay": pendulum.duration(minutes=1)},
) as dag:
    append = BashOperator(
        task_id="append",
        # a run of Airflow 3 is dated with the day on which it starts, its rows are those of the day before
        bash_command=f"dpsql append {STREAM} --catalog {CATALOG} --batch {{{{ macros.ds_add(ds, -1) }}}} --json",
    )
    export = BashOperator(
        task_id="export",
        bash_command=f"rm -rf {TABLES}.new && dpsql export {STREAM} -o {TABLES}.new --dbt "
        f"&& rm -rf {TABLES} && mv {TABLES}.new {TABLES}",
    )
    append >> export
