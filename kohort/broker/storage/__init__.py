"""Partitions on disk, in Kafka's own layout: plain blocking file code that knows nothing above it.

:mod:`kohort.broker.storage.log.log` is the entrance; the shells decide on which thread it is
called.
"""
