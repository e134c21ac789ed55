"""A limit on repeated names in a request. Contains no handlers.

Without repetitions, a response has at most as many elements as the broker has groups or topics. A
request of 100 kB may repeat a name fifty thousand times, and a response that describes a group or
the configs of a topic as often would have gigabytes.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from kohort.protocol.errors import ErrorCode, KafkaError

REPEATS_MAX: Final = 10
"""Repetitions in one request that are answered as in Kafka; no client sends any."""


def check_repeats(named: Iterable[Hashable]) -> None:
    """Raise KafkaError(INVALID_REQUEST) if more than `REPEATS_MAX` names are repetitions."""
    names = list(named)
    if len(names) > REPEATS_MAX and len(names) - len(set(names)) > REPEATS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"More than {REPEATS_MAX} repetitions in one request."
        )
