"""Principals, sessions, and the rules by which clients are let in."""
