"""The console: the broker's read-only web interface."""
