"""Functions of data frames: they read nothing and write nothing, and say which columns they make.

All are made of Spark's own functions; no row passes through Python.
"""
