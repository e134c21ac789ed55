"""`Consumer` and the parts of its interface."""
