"""Committed positions, the same for all kinds of groups."""
