"""Small files next to the log, protected by checksums."""
