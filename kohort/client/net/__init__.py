"""Connections to brokers, and the metadata of their cluster."""
