"""Kohort: a Kafka-protocol broker. This package is the public face; the others are its rooms."""
