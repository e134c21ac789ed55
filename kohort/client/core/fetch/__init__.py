"""What to fetch, what has arrived, and the position in each partition."""
