"""The rebalance history while the broker runs: a ring per group, and its topic."""
