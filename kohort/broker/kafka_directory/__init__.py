"""The way to Apache Kafka and back, by the files of a data directory."""
