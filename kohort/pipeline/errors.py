"""Errors that end a job; :mod:`kohort.insight.errors` shows the tree."""

from collections.abc import Callable
from typing import Final, TypeVar

from kohort.insight.errors import ReportedError
from kohort.insight.output import announce

TRIES: Final = 10
"""Maximum attempts at a change. Few suffice, because each rejected attempt means that another run
has made progress."""

_Result = TypeVar("_Result")


class ConflictError(ReportedError):
    """Another run changed the table; nothing was written, and a retry may succeed."""


class DataLossError(ReportedError):
    """Records were deleted before they were read; the message has topic, partition and offsets."""


class UnavailableError(ReportedError):
    """A broker, Java or a disk that the job needs is unavailable."""

    exit_code = 3


class RegistryError(Exception):
    """The schema registry is unavailable or its response is invalid: no value can be decoded.

    Raised on executors, which cannot end a job; the user sees its text in Spark's exception.
    """


def retry_on_conflict(attempt: Callable[[], _Result], tries: int = TRIES) -> _Result:
    """Return the result of `attempt`, which must be repeatable after a failure at any point.

    The table format accepts the first of two concurrent changes and rejects the second as a whole.
    A rejected change starts again from the current tables.

    Raises:
        ConflictError: all tries were rejected.
    """
    for _ in range(tries - 1):
        try:
            return attempt()
        except ConflictError as error:
            announce(f"{error}; trying again")
    return attempt()
