"""Charges a request to the client's quotas, and throttles the client (KIP-219).

The response is sent at once and says how long the client should wait; the connection executes and
reads nothing for that time, whatever the client does. A `Charge` is created only if some quota is
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
    """The charge of one request."""

    __slots__ = (
        "_busy_s", "_client_id", "_clock", "_info", "_key", "_now_ms", "_quotas", "_size", "_user",
    )  # fmt: skip

    def __init__(
        self,
        limits: ClientQuotas,
        clock: Clock,
        info: ConnectionInfo,
        header: RequestHeader,
        size: int,
    ) -> None:
        """`size` is the size of the request in bytes."""
        self._quotas = limits.quotas
        self._clock = clock
        self._info = info
        self._key = header.api_key
        self._user = info.session.principal.name
        self._client_id = header.client_id or ""
        self._size = size
        self._busy_s: float | None = None

    def is_parked(self, started_s: float) -> None:
        """Record that the handler waits; meanwhile it uses no time."""
        self._busy_s = perf_counter() - started_s

    def of_request(self, started_s: float, *, is_answered: bool) -> int:
        """Charge for the time used, and a Produce for its bytes; return the throttle time in
        milliseconds.
        """
        now_ms = self._now_ms = self._clock.monotonic_ms()
        throttle_ms = 0
        if is_answered:
            account = self._quotas.account(REQUEST, self._user, self._client_id)
            if account is not None:
                busy_s = perf_counter() - started_s if self._busy_s is None else self._busy_s
                throttle_ms = account.charge(int(busy_s * 1_000_000), now_ms)
        if self._key == PRODUCE_KEY:
            account = self._quotas.account(PRODUCER, self._user, self._client_id)
            if account is not None:
                throttle_ms = max(throttle_ms, account.charge(self._size, now_ms))
        return throttle_ms

    def of_answer(self, byte_count: int, throttle_ms: int) -> int:
        """Charge a Fetch for its answer, after `of_request`, whose throttle time is `throttle_ms`;
        return that of both. Then the answer is not to be given, and is not charged.
        """
        if self._key != FETCH_KEY:
            return throttle_ms
        account = self._quotas.account(CONSUMER, self._user, self._client_id)
        if account is not None:
            throttle_ms = max(throttle_ms, account.charge(byte_count, self._now_ms))
            if throttle_ms:
                account.charge(-byte_count, self._now_ms)
        return throttle_ms

    def hold_back(self, throttle_ms: int) -> None:
        """Throttle the connection after the response is written."""
        self._info.throttle_ms = throttle_ms
