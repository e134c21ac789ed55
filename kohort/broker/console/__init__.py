"""The console: the broker's web interface, read-only unless offsets may be set."""
