"""Delta tables. Spark writes large batches; delta-rs writes the tables of the history and the
findings.

delta-rs needs no session, so tasks on executors open tables themselves. A commit of a few rows
takes some ten milliseconds, whereas Spark spends a second on planning.
"""
