"""Fetch plans, buffers of fetched data, and the position in each partition."""
