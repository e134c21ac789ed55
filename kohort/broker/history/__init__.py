"""The rebalance history: the latest records of each group in memory, and their topic."""
