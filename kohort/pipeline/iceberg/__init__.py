"""Iceberg tables, by PyIceberg: any catalog that it knows, in Python, without a jar of Iceberg's.

(There is none for Spark 4.2, and the one for 4.1 does not fit.) Spark writes the files of large
batches, which are then added to the table in one commit; what Python holds it writes itself. A
change that has seen less than there is when it is committed is refused as a whole.
"""
