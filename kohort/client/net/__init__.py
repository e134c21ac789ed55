"""Connections to brokers, and the metadata of the cluster behind them."""
