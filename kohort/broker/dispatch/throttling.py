"""Charges a request to the client's quotas, and throttles the client (KIP-219).

The response is sent at once and says how long the client should wait; the connection executes and
reads nothing for that time, whatever the client does. A `Charge` is created only if some quota is
set.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final

from kohort.broker.core.security.quotas import Accounts
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.clock import Clock
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.protocol.framing import RequestHeader

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1


class Charge:
    """The charge of one request."""

    __slots__ = (
        "_accounts", "_busy_s", "_clock", "_header", "_info", "_now_ms", "_quotas", "_size",
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
        self._header = header
        self._size = size
        self._busy_s: float | None = None
        self._accounts: Accounts

    def is_parked(self, started_s: float) -> None:
        """Record that the handler waits; meanwhile it uses no time."""
        self._busy_s = perf_counter() - started_s

    def of_request(self, started_s: float, *, is_answered: bool) -> int:
        """Charge for the time used, and a Produce for its bytes; return the throttle time in
        milliseconds.
        """
        now_ms = self._now_ms = self._clock.monotonic_ms()
        header = self._header
        # Limits may have changed while the handler waited.
        accounts = self._accounts = self._quotas.accounts(
            self._info.session.principal.name, header.client_id or ""
        )
        throttle_ms = 0
        account = accounts.request
        if account is not None and is_answered:
            busy_s = perf_counter() - started_s if self._busy_s is None else self._busy_s
            throttle_ms = account.charge(int(busy_s * 1_000_000), now_ms)
        if header.api_key == PRODUCE_KEY:
            account = accounts.producer
            if account is not None:
                of_bytes_ms = account.charge(self._size, now_ms)
                if of_bytes_ms > throttle_ms:
                    return of_bytes_ms
        return throttle_ms

    def of_answer(self, byte_count: int, throttle_ms: int) -> int:
        """Charge a Fetch for its answer, after `of_request`, whose throttle time is `throttle_ms`;
        return that of both. Then the answer is not to be given, and is not charged.
        """
        account = self._accounts.consumer
        if account is not None:
            of_bytes_ms = account.charge(byte_count, self._now_ms)
            if throttle_ms or of_bytes_ms:
                throttle_ms = max(throttle_ms, of_bytes_ms)
                account.charge(-byte_count, self._now_ms)
        return throttle_ms

    def hold_back(self, throttle_ms: int) -> None:
        """Throttle the connection after the response is written."""
        self._info.throttle_ms = throttle_ms
