"""The rebalance history in tables, for the job `rebalances`.

`stream` and `files` supply records, `ingest` writes the rows of each record once, and `findings`
computes results that depend on several events.
"""
