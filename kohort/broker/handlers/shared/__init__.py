"""What several APIs have in common; no API of its own."""
