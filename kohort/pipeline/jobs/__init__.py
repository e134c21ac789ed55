"""A module for each command of ``kohort pipeline``: `add_arguments(parser)` and `run(options)`.

`run` returns the exit code, and raises ReportedError for errors that the user can fix.
"""
