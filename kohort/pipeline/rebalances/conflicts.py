"""Runs that write into the same tables at the same time, each as if it were alone.

Delta lets the first of two changes through and refuses the second as a whole. What was refused is
begun again, from what is in the tables now.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from kohort.insight.console import announce
from kohort.pipeline.errors import ConflictError

TRIES: Final = 10
"""Whenever one run is refused another has got on, so this is seldom needed even with several."""

_Result = TypeVar("_Result")


def again_on_conflict(attempt: Callable[[], _Result], tries: int = TRIES) -> _Result:
    """What `attempt` returns, which must be right to repeat wherever it broke off.

    Raises:
        ConflictError: it was always refused.
    """
    for _ in range(tries - 1):
        try:
            return attempt()
        except ConflictError as error:
            announce(f"{error}; doing it again")
    return attempt()
