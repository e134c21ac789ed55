"""How a command ends that could not do what it was asked.

::

    CommandError
    |-- NotFoundError       exit code 1
    |-- UsageError          exit code 2, as argparse's own
    |-- RefusedCommandError exit code 3
    `-- UnavailableError    exit code 3
"""

from typing import ClassVar


class CommandError(Exception):
    """The text is for the user: what is wrong, and what to do."""

    exit_code: ClassVar[int]


class NotFoundError(CommandError):
    """The thing that was asked for does not exist."""

    exit_code = 1


class UsageError(CommandError):
    """The command line cannot be meant."""

    exit_code = 2


class RefusedCommandError(CommandError):
    """A broker does not do it; the text says why, in its words."""

    exit_code = 3


class UnavailableError(CommandError):
    """No broker answers, or not in a way that helps."""

    exit_code = 3
