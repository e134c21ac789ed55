"""Each morning: the history of rebalances into the lake, advice, and a page for people to read.

An example for Apache Airflow 3. Each task is a command of Kohort that ends when it is
caught up and may be repeated: a run that is killed is repeated from where it was, and each event
is in the tables once. Kohort with its extra `spark`, and Java, have to be where the tasks run
(docs/pipeline.md).

To try it: put this file among your DAGs and set the Airflow variables `kohort_lake`,
`kohort_bootstrap_server` and `kohort_page`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

# Rendered when a task runs, not when the file is read. Quoted for the shell that runs it.
LAKE = "'{{ var.value.get('kohort_lake', '/srv/lake') }}'"
SERVER = "'{{ var.value.get('kohort_bootstrap_server', 'localhost:9092') }}'"
PAGE = "'{{ var.value.get('kohort_page', '/srv/www/rebalances.html') }}'"

with DAG(
    dag_id="rebalance_report",
    description="Why groups rebalanced, and what to change",
    schedule="0 6 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    # A run takes what there is: the days before need no runs of their own.
    catchup=False,
    # Two at a time are safe, and do each other's work.
    max_active_runs=1,
    default_args={
        "retries": 2,
        "retry_delay": timedelta(minutes=10),
        "execution_timeout": timedelta(hours=1),
    },
) as dag:
    rebalances = BashOperator(
        task_id="rebalances",
        bash_command=(
            f"kohort pipeline rebalances --available-now --lake {LAKE} --bootstrap-server {SERVER}"
        ),
    )
    advise = BashOperator(
        task_id="advise",
        bash_command=f'kohort pipeline advise --lake {LAKE} --topic ""',
    )
    report = BashOperator(
        task_id="report",
        bash_command=f"kohort pipeline report --lake {LAKE} --output {PAGE}",
    )
    rebalances >> advise >> report
