"""Errors that end a command, with their exit codes.

::

    ReportedError              exit code 1
    |-- UsageError             2: invalid command line
    |-- ConflictError          1: another run changes the same table
    |-- DataLossError          1: the topic has lost records that were not read yet
    `-- UnavailableError       3: a broker, Java or a disk is unavailable

The last three are defined and raised by the pipeline.
"""

from typing import ClassVar


class ReportedError(Exception):
    """The message is for the user: it states the problem and how to fix it."""

    exit_code: ClassVar[int] = 1


class UsageError(ReportedError):
    """An invalid option, or an unreadable file named on the command line."""

    exit_code = 2
