"""What a request names again and again. Contains no handlers.

An answer about what exists is bounded by what exists, as long as each thing is described once. A
name of two bytes may be repeated fifty thousand times in a request, and a group or the configs of a
topic described as often: gigabytes, for kilobytes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from kohort.protocol.errors import ErrorCode, KafkaError

REPEATS_MAX: Final = 10
"""Repetitions in one request that are answered as Kafka answers them; no client sends any."""


def check_repeats(named: Iterable[Hashable]) -> None:
    """Raise KafkaError(INVALID_REQUEST) if more than `REPEATS_MAX` names are repetitions."""
    names = list(named)
    if len(names) > REPEATS_MAX and len(names) - len(set(names)) > REPEATS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"More than {REPEATS_MAX} repetitions in one request."
        )
