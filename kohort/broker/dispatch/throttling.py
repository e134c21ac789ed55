"""What one request is charged with where clients have limits, and what comes of it (KIP-219).

The answer goes out at once and tells how long the client should wait; the connection executes and
reads nothing for that time, whatever the client does. There is a `Charge` only where some limit is
set.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from kohort.broker.core.security.quotas import CONSUMER, PRODUCER, REQUEST
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.clock import Clock
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.protocol.framing import RequestHeader

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1


class Charge:
    """One request's."""

    __slots__ = ("_busy_s", "_client_id", "_clock", "_info", "_key", "_quotas", "_size", "_user")

    def __init__(
        self,
        limits: ClientQuotas,
        clock: Clock,
        info: ConnectionInfo,
        header: RequestHeader,
        size: int,
    ) -> None:
        """`size` is that of the request, in bytes."""
        self._quotas = limits.quotas
        self._clock = clock
        self._info = info
        self._key = header.api_key
        self._user = info.session.principal.name
        self._client_id = header.client_id or ""
        self._size = size
        self._busy_s: float | None = None

    def is_parked(self, started_s: float) -> None:
        """The handler waits; until it goes on it takes no time."""
        self._busy_s = perf_counter() - started_s

    def of_request(self, started_s: float, *, is_answered: bool) -> int:
        """Charge for time, and a Produce for its bytes; milliseconds to be held back."""
        now_ms = self._clock.monotonic_ms()
        throttle_ms = 0
        if is_answered:
            busy_s = perf_counter() - started_s if self._busy_s is None else self._busy_s
            throttle_ms = self._charge(REQUEST, int(busy_s * 1_000_000), now_ms)
        if self._key == PRODUCE_KEY:
            throttle_ms = max(throttle_ms, self._charge(PRODUCER, self._size, now_ms))
        return throttle_ms

    def of_answer(self, byte_count: int) -> int:
        """Charge a Fetch for its answer. If that is too much it is not to be given, and is not
        charged; milliseconds to be held back, then.
        """
        if self._key != FETCH_KEY:
            return 0
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self._charge(CONSUMER, byte_count, now_ms)
        if throttle_ms:
            self._charge(CONSUMER, -byte_count, now_ms)
        return throttle_ms

    def hold_back(self, throttle_ms: int) -> None:
        """Have the connection wait when the answer is written."""
        self._info.throttle_ms = throttle_ms

    def _charge(self, key: str, amount: int, now_ms: int) -> int:
        return self._quotas.charge(key, self._user, self._client_id, amount, now_ms)
