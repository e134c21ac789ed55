"""Charges requests to their clients' quotas, and throttles clients above a quota (KIP-219).

The response is sent at once and says how long the client should wait; the connection executes and
reads nothing for that time, whatever the client does. Used only if some quota is set.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.core.security.account import FETCH_KEY, NO_ACCOUNTS
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.network.service import ResponseBuffers
from kohort.broker.runtime.clock import Clock
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.protocol.message import Struct


class NoQuotas:
    """Quotas that limit no client."""

    __slots__ = ()

    is_limiting: Final = False


class Charging:
    """Charges requests when their responses are ready."""

    __slots__ = ("_now_s", "_quotas")

    def __init__(self, quotas: ClientQuotas, clock: Clock) -> None:
        self._quotas = quotas
        self._now_s = clock.monotonic_s

    def charge(
        self,
        ctx: RequestContext,
        size_bytes: int,
        used_s: float,
        buffers: ResponseBuffers,
        response: Struct | None,
    ) -> int:
        """Charge the running time, and the bytes of a Produce or of the response to a Fetch.

        Returns the milliseconds for which the client has to be throttled, 0 if it is within its
        quotas.

        Args:
            used_s: running time of the request, excluding waiting time.
            buffers: the encoded response, None for a request without one.
            response: if its handler has set a throttle time, the larger one is returned.
        """
        header, connection = ctx.header, ctx.connection
        client_id, key, now_s = header.client_id, header.api_key, self._now_s()
        accounts = (
            connection.accounts if connection.accounts_of is connection.session else NO_ACCOUNTS
        )
        if not accounts.belong_to(client_id):
            accounts = self._quotas.accounts(connection, client_id)
        throttle_ms = accounts.charge(key, size_bytes, used_s, now_s, buffers)
        if key > FETCH_KEY and response is not None:
            own_ms: int = getattr(response, "throttle_time_ms", 0)
            if own_ms > throttle_ms:
                return own_ms
        return throttle_ms
