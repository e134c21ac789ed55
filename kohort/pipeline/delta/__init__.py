"""Delta tables: Spark writes large batches, and delta-rs those of the history and the findings.

delta-rs needs no session, so tasks on executors open tables themselves, and a commit of a few rows
takes some ten milliseconds instead of a second of planning.
"""
