"""One module for each job: `add_arguments(parser)`, and `run(options)`, which returns an exit code.

Jobs raise ReportedError for whatever their user can mend.
"""
