"""Analyses rebalance histories: findings, advice, the report, and a reader of broker logs.

Plain Python over history records, without Spark and without a connection to a broker.
"""
