"""The rebalance history in tables: what the job `rebalances` is made of.

`stream` and `files` bring records, `ingest` makes rows of them, each once, `findings` works out
what only several events together tell.
"""
