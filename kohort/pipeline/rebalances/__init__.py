"""The rebalance history in tables, for the job `rebalances`.

`stream` and `files` supply records, `ingest` writes each as rows once, and `findings` computes
results that depend on several events.
"""
