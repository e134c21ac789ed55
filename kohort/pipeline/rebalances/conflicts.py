"""Retries changes that conflict with a concurrent run.

The table format accepts the first of two concurrent changes and rejects the second as a whole. A
rejected change starts again from the current tables.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from kohort.insight.output import announce
from kohort.pipeline.errors import ConflictError

TRIES: Final = 10
"""A rejected change means that another run has made progress, so few tries suffice."""

_Result = TypeVar("_Result")


def retry_on_conflict(attempt: Callable[[], _Result], tries: int = TRIES) -> _Result:
    """Return the result of `attempt`, which must be repeatable after a failure at any point.

    Raises:
        ConflictError: all tries were rejected.
    """
    for _ in range(tries - 1):
        try:
            return attempt()
        except ConflictError as error:
            announce(f"{error}; trying again")
    return attempt()
