"""Delta tables. Spark writes large batches; delta-rs writes the tables of the history and the
findings.

delta-rs needs no session, so tasks on executors open tables themselves. It commits a few rows in
some ten milliseconds; Spark would take a second to plan the write.
"""
