"""Errors of commands, by exit code, and those for unknown topics and groups.

::

    CommandError
    |-- NotFoundError       exit code 1
    |-- UsageError          exit code 2, as argparse's own
    |-- UnavailableError    exit code 3
    |   `-- StartingError
    |-- RefusedCommandError exit code 4
    `-- ExistsError         exit code 5
"""

from __future__ import annotations

from typing import ClassVar


class CommandError(Exception):
    """The text is for the user: what is wrong, and what to do about it."""

    exit_code: ClassVar[int]


class NotFoundError(CommandError):
    """The topic, group or other thing does not exist."""

    exit_code = 1


class UsageError(CommandError):
    exit_code = 2


class UnavailableError(CommandError):
    """No broker answers, it is still starting, or its answer cannot be used."""

    exit_code = 3


class StartingError(UnavailableError):
    """The broker is still verifying its logs; the text has the progress."""


class RefusedCommandError(CommandError):
    """A broker rejects the request or the credentials; the text has its reason."""

    exit_code = 4


class ExistsError(CommandError):
    exit_code = 5


def no_topic(name: str) -> NotFoundError:
    return NotFoundError(f"there is no topic {name!r}; `kohort topics list` lists all topics")


def no_group(group_id: str) -> NotFoundError:
    return NotFoundError(f"there is no group {group_id!r}; `kohort groups list` lists all groups")
