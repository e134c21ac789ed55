"""Spark jobs that read a broker over the wire and keep what they learn in a lake of Delta tables.

`jobs` have the only session and do the I/O, `transformations` are functions of data frames. The
only room of the broker that may be imported is `kohort.broker.core.group`, which replays what-ifs.
"""
