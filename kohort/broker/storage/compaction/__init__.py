"""Keeps the last record of each key."""
