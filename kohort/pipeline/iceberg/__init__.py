"""Iceberg tables through PyIceberg, in any catalog that it supports, without an Iceberg jar.

(Iceberg has no jar for Spark 4.2, and its jar for 4.1 is incompatible.) For large batches Spark
writes files, which one commit then adds to the table; rows in Python memory are written by
PyIceberg. A change fails as a whole if the table has changed since it was read.
"""
