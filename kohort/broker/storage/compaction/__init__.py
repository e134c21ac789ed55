"""Log compaction: keeps the last record of each key."""
