"""The rules: from the records of __consumer_offsets to events of the rebalance history. Pure."""
