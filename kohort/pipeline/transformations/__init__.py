"""Functions of data frames without I/O; each docstring names the resulting columns.

They use only Spark's own functions; no row passes through Python.
"""
