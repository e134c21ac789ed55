"""The second edge: HTTP on its own port, for metrics, probes and pages."""
