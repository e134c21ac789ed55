"""Small files beside the log, protected by checksums."""
