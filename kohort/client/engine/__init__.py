"""The engine of a consumer: wires its parts together, polls and shuts down."""
