"""Executes requests that only one kind of group supports; one module for each kind."""
