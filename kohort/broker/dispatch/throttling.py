"""Charges requests to the quotas of their clients, and throttles these (KIP-219).

The response is sent at once and says how long the client should wait; the connection executes and
reads nothing for that time, whatever the client does. Used only if some quota is set.
"""

from __future__ import annotations

from time import perf_counter
from typing import Final, TypeAlias

from kohort.broker.core.security.quotas import Account, Accounts
from kohort.broker.network.service import ConnectionInfo, ResponseBuffers
from kohort.broker.runtime.clock import Clock
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.protocol.framing import RequestHeader
from kohort.protocol.message import Struct

PRODUCE_KEY: Final = 0
FETCH_KEY: Final = 1

Charge: TypeAlias = tuple[ConnectionInfo, Accounts, int, float | None]
"""What a request is charged by: the connection that it came from, the accounts of its client, its
size in bytes, and the seconds that its handler took before it waited, None if it did not: to wait
is no use of time. Once it goes on, in place of these the time on `perf_counter` at which it would
have begun had it not waited. Not a class, because one is made for every request.
"""


class Charging:
    """Charges requests when their responses are ready."""

    __slots__ = ("_limits", "_now_ms")

    def __init__(self, limits: ClientQuotas, clock: Clock) -> None:
        self._limits = limits
        self._now_ms = clock.monotonic_ms

    def resumed(self, charge: Charge) -> Charge:
        """The charge of a request that has waited, and whose response is now to be made."""
        connection, accounts, size, busy_s = charge
        worked_s, connection.worked_s = connection.worked_s, 0.0
        return connection, accounts, size, perf_counter() - (busy_s or 0.0) - worked_s

    def charge(
        self,
        charge: Charge,
        header: RequestHeader,
        took_s: float,
        buffers: ResponseBuffers,
        response: Struct | None,
    ) -> int:
        """Charge for the time that was used, and for the bytes of a Produce or of the response to a
        Fetch. Returns the milliseconds for which the client has to be throttled, 0 if it is within
        its quotas.

        Args:
            took_s: time since the request arrived.
            buffers: the encoded response, None for a request that is not answered.
            response: where the handler has determined a throttle time itself, the larger one is
                returned.
        """
        # What `Account.charge` does for nearly every request is inlined: a call that finds nothing
        # of itself in the processor's caches takes as long as all the rest.
        connection, accounts, size, begun_s = charge
        if not accounts.is_current:
            # Limits have changed while the handler waited.
            accounts = self._limits.accounts(connection, header.client_id)
        now_ms = self._now_ms()
        throttle_ms = 0
        account = accounts.request
        if account is not None and buffers is not None:
            used_s = took_s if begun_s is None else perf_counter() - begun_s
            amount = int(used_s * 1_000_000)
            left = account.left - amount
            if left >= 0 and now_ms < account.sample_end_ms:
                account.left, account.last_ms = left, now_ms
            else:
                throttle_ms = account.charge(amount, now_ms)
        key = header.api_key
        if key == PRODUCE_KEY:
            account = accounts.producer
            if account is not None:
                left = account.left - size
                if left < 0 or now_ms >= account.sample_end_ms:
                    return max(throttle_ms, account.charge(size, now_ms))
                account.left, account.last_ms = left, now_ms
        elif key == FETCH_KEY:
            account = accounts.consumer
            if account is not None and buffers is not None:
                amount = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
                left = account.left - amount
                if throttle_ms or left < 0 or now_ms >= account.sample_end_ms:
                    return _charge_response(account, amount, throttle_ms, now_ms)
                account.left, account.last_ms = left, now_ms
        else:
            own_ms: int = getattr(response, "throttle_time_ms", 0)
            if own_ms > throttle_ms:
                return own_ms
        return throttle_ms


def _charge_response(account: Account, byte_count: int, throttle_ms: int, now_ms: int) -> int:
    """Charge the response to a Fetch. If the client is throttled, by whichever quota, the data is
    not sent, and not charged.
    """
    of_bytes_ms = account.charge(byte_count, now_ms)
    if throttle_ms or of_bytes_ms:
        account.charge(-byte_count, now_ms)
    return max(throttle_ms, of_bytes_ms)
