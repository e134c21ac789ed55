"""Lands topics in tables, for `kohort pipeline land`."""
