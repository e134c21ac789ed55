"""Converts a data directory to Apache Kafka's format and back."""
