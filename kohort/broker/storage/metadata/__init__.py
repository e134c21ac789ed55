"""The broker's metadata, in two copies."""
