"""Reads rebalance histories from the log of a broker that records none: stock Kafka 1.0 to 4.x.

`lines` parses the coordinator's lines, `story` assembles those of one group, and `convert` reads
the files. No Spark: the result is JSON lines, as in the history topic.
"""
