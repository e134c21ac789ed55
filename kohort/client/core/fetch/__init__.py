"""What to fetch, what has arrived, and where the consumer stands in each partition."""
