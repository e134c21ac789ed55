"""Partitions on disk, in Kafka's own layout: blocking file code, independent of the layers above.

:mod:`kohort.broker.storage.log.log` is the main interface; its callers decide in which thread they
call it.
"""
