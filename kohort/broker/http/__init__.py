"""The second edge: HTTP on a port of its own, for metrics and for probes."""
