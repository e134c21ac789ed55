"""What the broker knows beside the records, in two copies."""
