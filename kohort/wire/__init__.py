"""A small blocking Kafka client for the command line, made of `protocol` and sockets."""
