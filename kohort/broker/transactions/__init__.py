"""Runs the transaction coordinator: transactional ids, their log, and markers for partitions."""
