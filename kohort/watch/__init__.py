"""Explains the rebalances of any Kafka cluster from its __consumer_offsets topic."""
