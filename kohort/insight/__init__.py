"""Analyses rebalance histories: findings, advice, the report, and a reader of broker logs."""
