"""What the broker takes from the process that it runs in."""
