"""Requests that only one kind of group executes, a module for each kind."""
