"""Opens connections on the event loop: fetches a token if needed, connects by TCP and TLS, performs
the handshake.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable
from typing import Final

from kohort.client.core.errors import AuthenticationError
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError, connect_error
from kohort.client.net.loop_tokens import token_for
from kohort.client.net.security import SecurityConfig
from kohort.client.net.thread_call import run_in_thread

NEXT_ADDRESS_S: Final = 0.25
"""How long to wait for one address of a host before the next one is tried in parallel, as RFC 8305
proposes."""


async def open_connection(host: str, port: int, config: ConnectionConfig) -> BrokerConnection:
    """Connect, negotiate versions and authenticate.

    Raises:
        DisconnectedError: no response, or the peer is not a Kafka broker.
        AuthenticationError: the broker rejects the credentials, or fails to prove its identity.
        TokenError: the provider returned no token.
    """
    address = f"{host}:{port}"
    connection: BrokerConnection | None = None
    # Get the token first, because a broker closes a connection that does not authenticate soon.
    token = await token_for(config.security, config.request_timeout_ms / 1000)
    try:
        async with asyncio.timeout(config.request_timeout_ms / 1000):
            connection = await _connect(host, port, config)
            await connection.greet(token)
    except BaseException as error:
        if isinstance(error, AuthenticationError):
            config.security.discard(token)
        if connection is not None:
            connection.close()
            await connection.wait_closed()
        if isinstance(error, TimeoutError):
            raise DisconnectedError(
                f"{address} cannot be reached: no answer within {config.request_timeout_ms} ms"
            ) from None
        raise
    return connection


async def _context(security: SecurityConfig) -> ssl.SSLContext | None:
    if security.files is not None:
        return await run_in_thread(security.files.context, "load certificates")
    return security.tls_context


async def _connect(host: str, port: int, config: ConnectionConfig) -> BrokerConnection:
    """Connect to the first of the host's addresses that answers (RFC 8305).

    Attempts start one after another, NEXT_ADDRESS_S apart, or as soon as the previous one has
    failed.
    """
    address = f"{host}:{port}"
    loop = asyncio.get_running_loop()
    try:
        infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise connect_error(address, error, config.security) from error
    context = await _context(config.security)
    places = list(dict.fromkeys(info[4][:2] for info in infos))
    attempts: set[asyncio.Task[BrokerConnection]] = set()
    failure: OSError = OSError("the name has no address")
    try:
        while places or attempts:
            if places:
                ip, port_found = places.pop(0)
                attempt = _connect_to(str(ip), int(port_found), address, host, config, context)
                attempts.add(asyncio.create_task(attempt, name=f"connect to {ip}"))
            done, _ = await asyncio.wait(
                attempts,
                timeout=NEXT_ADDRESS_S if places else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                attempts.remove(task)
                try:
                    return task.result()
                except OSError as error:
                    failure = error
    finally:
        await _give_up(attempts)
    if isinstance(failure, TimeoutError):
        raise DisconnectedError(f"{address} cannot be reached: no answer") from None
    raise connect_error(address, failure, config.security) from failure


async def _connect_to(
    ip: str,
    port: int,
    address: str,
    host: str,
    config: ConnectionConfig,
    context: ssl.SSLContext | None,
) -> BrokerConnection:
    async with asyncio.timeout(config.connect_timeout_ms / 1000):
        transport, connection = await asyncio.get_running_loop().create_connection(
            lambda: BrokerConnection(address, config),
            ip,
            port,
            ssl=context,
            server_hostname=host if context is not None else None,
        )
    raw_socket = transport.get_extra_info("socket")
    if raw_socket is not None:
        raw_socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


async def _give_up(attempts: Iterable[asyncio.Task[BrokerConnection]]) -> None:
    """Cancel these attempts, and close the connections that they have opened."""
    for attempt in attempts:
        attempt.cancel()
    for made in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(made, BrokerConnection):
            made.close()
