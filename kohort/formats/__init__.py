"""Text formats: Java properties, JAAS configuration, and human-readable values."""
