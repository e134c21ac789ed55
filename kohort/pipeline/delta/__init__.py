"""Changes Delta tables by rows in Python memory, without a Spark query.

A query needs a second of planning before its first row. So Python reads the table's log to find its
files, Arrow reads and writes the Parquet files, and Delta performs the commit with all its checks.
Tables that use more features of Delta (deletion vectors, column mapping) are read and written by
Spark, and so is everything too large for the driver.
"""
