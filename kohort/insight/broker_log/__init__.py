"""Rebalance histories out of the log of a broker that keeps none: stock Kafka, from 1.0 to 4.x.

`lines` knows what the coordinator's lines say, `story` puts those of a group together, `convert`
goes through files. No Spark, no session: the result is JSON lines, as the topic would have them.
"""
