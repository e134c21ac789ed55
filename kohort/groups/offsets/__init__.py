"""Committed offsets, the same for all kinds of groups."""
