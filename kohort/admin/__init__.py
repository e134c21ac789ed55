"""What the command line asks of any Kafka cluster, over the client's blocking connections."""
