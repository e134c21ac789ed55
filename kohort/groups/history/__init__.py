"""Rebalances and their causes: folds a group's events into records, and formats them. No I/O."""
