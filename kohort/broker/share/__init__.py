"""Share groups in the broker: the state of share-partitions, and the requests that use it."""
