"""Share groups (KIP-932): members share the records of a partition, each locked for a time."""
