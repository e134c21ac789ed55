"""Kafka's wire protocol: bytes to typed messages and back. No I/O, no clock, no tasks."""
