"""Errors of commands, by exit code.

::

    CommandError
    |-- NotFoundError       exit code 1
    |-- UsageError          exit code 2, as argparse's own
    |-- UnavailableError    exit code 3
    |-- RefusedCommandError exit code 4
    `-- ExistsError         exit code 5
"""

from typing import ClassVar


class CommandError(Exception):
    """The text is for the user: what is wrong, and what to do about it."""

    exit_code: ClassVar[int]


class NotFoundError(CommandError):
    """The topic, group or other thing does not exist."""

    exit_code = 1


class UsageError(CommandError):
    """The command line is invalid."""

    exit_code = 2


class UnavailableError(CommandError):
    """No broker answers, it is still starting, or its answer cannot be used."""

    exit_code = 3


class RefusedCommandError(CommandError):
    """A broker rejects the request or the credentials; the text has its reason."""

    exit_code = 4


class ExistsError(CommandError):
    """What is to be created exists already."""

    exit_code = 5
