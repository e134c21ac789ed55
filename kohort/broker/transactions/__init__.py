"""Transactions while the broker runs: ids, their log, and markers for partitions."""
