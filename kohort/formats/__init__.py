"""Text formats: Java properties and JAAS as of Kafka's tools, and values as text for people."""
