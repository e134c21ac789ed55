"""Delta tables changed by rows that Python holds, without a query of Spark.

A query costs a second of planning before its first row. What a table's files are is in its log,
which Python reads as well; files are Parquet, which Arrow writes; the commit is Delta's own, with
all that it checks. Tables that use more of Delta than this (deletion vectors, column mapping) are
read and written by Spark, as everything is that is too much for the driver.
"""
