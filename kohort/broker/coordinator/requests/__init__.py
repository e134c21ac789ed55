"""The requests that only one kind of group understands, a module for each kind."""
