"""Text formats of Kafka's tools: Java properties and JAAS."""
