"""A blocking admin client of the command line, for Kohort and Kafka clusters."""
