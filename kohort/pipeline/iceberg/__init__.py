"""Iceberg tables through PyIceberg: any catalog that it supports, without an Iceberg jar.

(There is no jar for Spark 4.2, and the one for 4.1 is incompatible.) Spark writes the files of
large batches, which one commit then adds to the table; rows in Python memory are written by
PyIceberg. A change fails as a whole if the table has changed since it was read.
"""
