"""Waits for OAuth tokens on an event loop, on which it also runs asynchronous token providers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kohort.client.net.oauth import OAuthToken
from kohort.client.net.security import SecurityConfig
from kohort.client.net.tokens import Attempt, TokenSource


async def token_for(security: SecurityConfig, timeout_s: float) -> OAuthToken | None:
    """Return a token for an authentication that begins now; None if the mechanism needs none.

    Raises:
        TokenError: the provider raised, did not return within `timeout_s`, or returned no valid
            token.
    """
    return None if security.tokens is None else await token_of(security.tokens, timeout_s)


async def token_of(tokens: TokenSource, timeout_s: float) -> OAuthToken:
    """Return a token from `tokens`. Raises TokenError for the reasons that `token_for` lists."""
    attempt = tokens.ask(timeout_s, runner=_Loop(asyncio.get_running_loop()))
    waiting = asyncio.wrap_future(attempt)
    # Retrieve an exception that arrives after this wait has timed out; asyncio would log it.
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
    if not waiting.done():
        await asyncio.wait([waiting], timeout=tokens.wait_max_s(timeout_s))
    return tokens.settled(attempt, timeout_s)


class _Loop:
    """Runs coroutines on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        """The running call; referenced here, because a loop keeps only weak references to its
        tasks."""

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, call: Callable[[], Awaitable[object]], attempt: Attempt) -> None:
        def start() -> None:
            attempt.begin()
            self._task = self._loop.create_task(_awaited(call, attempt), name="fetch a token")

        self._loop.call_soon_threadsafe(start)


async def _awaited(call: Callable[[], Awaitable[object]], attempt: Attempt) -> None:
    limit = asyncio.timeout(attempt.timeout_s)
    try:
        async with limit:
            answer = await call()
    except asyncio.CancelledError as error:
        # The loop is shutting down, or the application's coroutine was cancelled.
        attempt.fail(error)
        raise
    except Exception as error:  # noqa: BLE001 - the application's; raised where it is waited for.
        if limit.expired():
            attempt.give_up()
        else:
            attempt.fail(error)
    else:
        attempt.end(answer)
