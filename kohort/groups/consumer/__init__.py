"""Consumer groups (KIP-848): the broker assigns, and each member reconciles on its own."""
