"""A module for each command of ``kohort pipeline``: `add_arguments` and `run`."""
