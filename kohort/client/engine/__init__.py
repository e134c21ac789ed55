"""The engine of a consumer: its parts wired together, polled and ended."""
