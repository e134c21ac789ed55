"""Errors that end a command, with the exit code that they end it with.

::

    ReportedError              exit code 1
    |-- UsageError             2: the command line cannot be meant
    |-- ConflictError          1: another run changes the same table
    |-- DataLossError          1: the topic no longer has what is still to be read
    `-- UnavailableError       3: a broker, Java, a disk: something outside is missing

The last three are raised by the pipeline, which defines them.
"""

from typing import ClassVar


class ReportedError(Exception):
    """The text is for the user: what is wrong, and what to do."""

    exit_code: ClassVar[int] = 1


class UsageError(ReportedError):
    """An option or a file named on the command line cannot be used."""

    exit_code = 2
