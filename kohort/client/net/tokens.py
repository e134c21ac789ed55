"""Fetches OAUTHBEARER tokens from the application's provider, for all connections of one client.

A coroutine function runs on the application's loop, whichever thread needs the token. A plain
function runs in a new thread, since it usually blocks; so it runs even while the loop is blocked.
There is one call at a time, and every wait for it has a timeout.

This module does not import asyncio, which the CLI does not use; `loop_tokens` imports it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, Protocol

from kohort.client.core.errors import TokenError
from kohort.client.net.oauth import (
    SETTING,
    NoTokenError,
    OAuthToken,
    Provider,
    is_awaitable,
    is_fresh,
    is_good,
)
from kohort.protocol.errors import ErrorCode

logger = logging.getLogger(__name__)

LATE_WAIT_S: Final = 1.0
"""How long to wait for a new token while the old one is still valid."""

_TEXT_MAX: Final = 300


class Runner(Protocol):
    """The interface of an event loop that runs coroutine providers."""

    @property
    def is_closed(self) -> bool:
        """Whether the loop has ended."""

    def run(self, call: Callable[[], Awaitable[object]], attempt: Attempt) -> None:
        """Await the result of `call` on the loop, and report to `attempt`.

        Raises:
            RuntimeError: the loop is closed.
        """


class TokenSource:
    """The tokens of one provider; thread-safe."""

    def __init__(self, given: object, *, wall_s: Callable[[], float] = time.time) -> None:
        """`wall_s` returns the wall-clock time, with which expiry times of tokens are compared.

        Raises:
            ValueError: `given` is not a provider.
        """
        self._provider = Provider(given)
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._runner: Runner | None = None
        """The application's event loop, once known."""
        self._token: OAuthToken | None = None
        self._fetched_s = 0.0
        self._attempt: Attempt | None = None

    def wait(self, attempt: Future[OAuthToken], timeout_s: float) -> OAuthToken:
        """Wait for the token that `ask` requested; blocks. Raises TokenError."""
        with suppress(TimeoutError):
            attempt.exception(self.wait_max_s(timeout_s))
        return self.settled(attempt, timeout_s)

    def ask(self, timeout_s: float, *, runner: Runner | None = None) -> Future[OAuthToken]:
        """Request a token without waiting; concurrent callers share one call of the provider.

        Args:
            timeout_s: how long the provider may take, if this starts a call.
            runner: the caller's loop; None for a caller without a loop: use the last known loop.
        """
        with self._lock:
            self._runner = runner or self._runner
            token, running = self._token, self._attempt
            if token is not None and is_fresh(token, self._fetched_s, self._wall_s()):
                return _done(token)
            if running is not None and running.is_under_way:
                # A call that has not begun was waiting for its blocked loop. If the caller is on
                # that loop, it runs again, and the call begins.
                is_only_late = runner is not None and not running.is_begun
                if running.age_s < running.timeout_s or is_only_late:
                    return running.future
                # The provider hangs: another call would hang as well, and calls would pile up.
                return _failed(_error(_late(running, running.age_s)))
            attempt = self._attempt = Attempt(timeout_s, self._runner, self._take)
        self._begin(attempt)
        return attempt.future

    def discard(self, token: OAuthToken) -> None:
        """Drop a token that a broker has rejected."""
        with self._lock:
            if self._token is token:
                self._token = None

    def wait_max_s(self, timeout_s: float) -> float:
        """How long to wait for a requested token: briefly while the last token is valid."""
        return min(timeout_s, LATE_WAIT_S) if self._old() is not None else timeout_s

    def _old(self) -> OAuthToken | None:
        """The last token, if it has not expired yet."""
        with self._lock:
            token = self._token
            return token if token is not None and is_good(token, self._wall_s()) else None

    def settled(self, future: Future[OAuthToken], timeout_s: float) -> OAuthToken:
        """Return the new token if there is one, else the last one if valid. Raises TokenError."""
        if not future.done():
            attempt = self._attempt
            assert attempt is not None
            error: BaseException = _error(_late(attempt, timeout_s))
        elif (failure := future.exception()) is None:
            return future.result()
        else:
            error = failure
        old = self._old()
        if old is None:
            raise error
        logger.warning("%s; using the last token until it expires", error)
        return old

    def _begin(self, attempt: Attempt) -> None:
        """Start a call: on the loop if the provider is a coroutine function, else in a thread."""
        if self._provider.is_async:
            _run(attempt, self._provider.begin)
            return
        attempt.begin()
        thread = threading.Thread(
            target=self._run_in_thread, args=(attempt,), name="fetch a token", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            # The thread limit is reached; a later attempt may succeed.
            attempt.fail(error)

    def _run_in_thread(self, attempt: Attempt) -> None:
        try:
            answer = self._provider.begin()
        except BaseException as error:  # noqa: BLE001 - the application's; raised where it is waited for.
            attempt.fail(error)
            return
        if is_awaitable(answer):
            # The plain function returned an awaitable, which begins once the loop runs it.
            attempt.is_begun = False
            _run(attempt, lambda: answer)
        else:
            attempt.end(answer)

    def _take(self, answer: object) -> OAuthToken:
        now_s = self._wall_s()
        token = self._provider.finish(answer, now_s)
        with self._lock:
            self._token, self._fetched_s = token, now_s
        return token


class Attempt:
    """One call of the provider. Its runner reports its start and its result."""

    def __init__(
        self, timeout_s: float, runner: Runner | None, take: Callable[[object], OAuthToken]
    ) -> None:
        """`take` converts the provider's return value to a token, or raises."""
        self.timeout_s = timeout_s
        self.runner = runner
        self.future: Future[OAuthToken] = Future()
        self.is_begun = False
        self._take = take
        self._began_s = time.monotonic()

    def begin(self) -> None:
        self.is_begun = True
        self._began_s = time.monotonic()

    def end(self, answer: object) -> None:
        """Record the provider's return value."""
        try:
            self.future.set_result(self._take(answer))
        except Exception as error:  # noqa: BLE001 - `extensions` is the application's, too.
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Record an exception of the provider."""
        self.future.set_exception(_raised(error))

    def give_up(self) -> None:
        """Fail, because the provider has exceeded its time limit."""
        self.future.set_exception(_error(_late(self, self.timeout_s)))

    @property
    def age_s(self) -> float:
        return time.monotonic() - self._began_s

    @property
    def is_under_way(self) -> bool:
        """Whether the call may still succeed: it has not ended, and its event loop is open."""
        return not self.future.done() and not (self.runner is not None and self.runner.is_closed)


def _run(attempt: Attempt, call: Callable[[], Any]) -> None:
    try:
        if attempt.runner is None:
            raise RuntimeError("no event loop to run it")
        attempt.runner.run(call, attempt)
    except RuntimeError as error:
        attempt.future.set_exception(_error(f"{SETTING} is a coroutine function: {error}"))


def _late(attempt: Attempt, waited_s: float) -> str:
    if attempt.is_begun:
        return f"{SETTING} did not return a token within {waited_s:.3g} s"
    return (
        f"{SETTING} could not run for {waited_s:.3g} s, because the event loop is blocked; move"
        " blocking work to a thread, or use a plain function, which needs no loop"
    )


def _done(token: OAuthToken) -> Future[OAuthToken]:
    future: Future[OAuthToken] = Future()
    future.set_result(token)
    return future


def _failed(error: TokenError) -> Future[OAuthToken]:
    future: Future[OAuthToken] = Future()
    future.set_exception(error)
    return future


def _error(text: str) -> TokenError:
    return TokenError(text, ErrorCode.SASL_AUTHENTICATION_FAILED)


def _raised(error: BaseException) -> TokenError:
    if isinstance(error, NoTokenError):
        return _error(f"{SETTING}: {error}")
    token_error = _error(f"{SETTING} raised {type(error).__name__}: {str(error)[:_TEXT_MAX]}")
    token_error.__cause__ = error
    return token_error
