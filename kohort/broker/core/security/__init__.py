"""Principals, sessions, authentication mechanisms and access rules."""
