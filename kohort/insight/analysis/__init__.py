"""Computes findings from one group's events: rows of the history in, rows of the tables FINDINGS
out.

Plain Python without Spark, clock or files. `kohort.pipeline.rebalances` calls it in the driver for
a few groups, on the executors for many.
"""
