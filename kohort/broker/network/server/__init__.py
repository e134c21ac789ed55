"""The server: listeners, admission and unauthenticated connections."""
