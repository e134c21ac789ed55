"""Asking the application for tokens, from its loop and from other threads."""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor

import pytest

from kohort.client.core.errors import TokenError
from kohort.client.net.loop_tokens import token_of
from kohort.client.net.oauth import OAuthToken
from kohort.client.net.tokens import TokenSource
from tests.support.virtual_time import virtual

LONG_S = 30.0


class Issuer:
    """Counts what it gives out; each token is good for 100 s."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.count = 0
        self.failure: Exception | None = None
        self.threads: list[threading.Thread] = []

    def give(self) -> tuple[str, float]:
        self.threads.append(threading.current_thread())
        self.count += 1
        if self.failure is not None:
            raise self.failure
        return f"token-{self.count}", self.now_s + 100

    async def give_soon(self) -> tuple[str, float]:
        await asyncio.sleep(0.01)
        return self.give()

    def wall_s(self) -> float:
        return self.now_s


async def in_thread(source: TokenSource, timeout_s: float = LONG_S) -> OAuthToken:
    def ask() -> OAuthToken:
        return source.wait(source.ask(timeout_s), timeout_s)

    return await asyncio.to_thread(ask)


@virtual
async def test_a_token_is_shared_until_it_is_near_its_end() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give_soon, wall_s=issuer.wall_s)
    assert {
        one.value for one in await asyncio.gather(*(token_of(source, 9) for _ in range(5)))
    } == {"token-1"}
    issuer.now_s += 79
    assert (await token_of(source, 9)).value == "token-1"
    issuer.now_s += 2
    assert (await token_of(source, 9)).value == "token-2"


@virtual
async def test_a_token_that_a_broker_has_refused_is_not_offered_again() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give_soon, wall_s=issuer.wall_s)
    first = await token_of(source, 9)
    source.discard(first)
    second = await token_of(source, 9)
    assert second.value == "token-2"
    # A refusal that comes late is not one of the new token.
    source.discard(first)
    assert await token_of(source, 9) is second


@virtual
async def test_what_the_provider_raises_is_told_and_the_next_attempt_asks_again() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give_soon, wall_s=issuer.wall_s)
    issuer.failure = OSError("the issuer is away")
    with pytest.raises(TokenError, match="raised OSError: the issuer is away") as failed:
        await token_of(source, 9)
    assert failed.value.__cause__ is issuer.failure
    issuer.failure = None
    assert (await token_of(source, 9)).value == "token-2"


@virtual
async def test_a_coroutine_that_hangs_is_given_up_in_time() -> None:
    was_cancelled = asyncio.Event()

    async def give() -> str:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            was_cancelled.set()
            raise
        return "never"

    loop = asyncio.get_running_loop()
    began_s = loop.time()
    with pytest.raises(TokenError, match="did not return a token within 9 s"):
        await token_of(TokenSource(give), 9)
    assert loop.time() - began_s == pytest.approx(9, abs=0.1)
    await was_cancelled.wait()


@virtual
async def test_a_time_limit_of_the_providers_own_is_what_it_has_raised() -> None:
    async def give() -> str:
        async with asyncio.timeout(1):
            await asyncio.sleep(5)
        return "never"

    with pytest.raises(TokenError, match="raised TimeoutError"):
        await token_of(TokenSource(give), 9)


@virtual
async def test_while_the_last_token_is_good_a_failure_is_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give_soon, wall_s=issuer.wall_s)
    first = await token_of(source, 9)
    issuer.failure = OSError("the issuer is away")
    issuer.now_s += 99
    assert await token_of(source, 9) is first
    assert "the issuer is away; using the last token" in caplog.text
    issuer.now_s += 1
    with pytest.raises(TokenError, match="the issuer is away"):
        await token_of(source, 9)


@virtual
async def test_while_the_last_token_is_good_no_one_waits_for_one_that_hangs() -> None:
    issuer = Issuer()
    hangs = False

    async def give() -> tuple[str, float]:
        if hangs:
            await asyncio.sleep(1e6)
        return issuer.give()

    source = TokenSource(give, wall_s=issuer.wall_s)
    first = await token_of(source, 9)
    hangs = True
    issuer.now_s += 99
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    assert await token_of(source, 9) is first
    assert loop.time() - began_s == pytest.approx(1, abs=0.1)


async def test_a_coroutine_runs_on_the_loop_whichever_thread_wants_the_token() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give_soon, wall_s=issuer.wall_s)
    await token_of(source, LONG_S)
    issuer.now_s += 90
    assert (await in_thread(source)).value == "token-2"
    assert set(issuer.threads) == {threading.current_thread()}


async def test_a_plain_function_runs_beside_the_loop() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give, wall_s=issuer.wall_s)
    assert (await token_of(source, LONG_S)).value == "token-1"
    issuer.now_s += 90
    assert (await in_thread(source)).value == "token-2"
    assert threading.current_thread() not in issuer.threads


async def test_a_plain_function_that_returns_a_coroutine_is_awaited_on_the_loop() -> None:
    issuer = Issuer()

    def give() -> Coroutine[None, None, tuple[str, float]]:
        return issuer.give_soon()

    source = TokenSource(give, wall_s=issuer.wall_s)
    assert (await token_of(source, LONG_S)).value == "token-1"
    assert issuer.threads == [threading.current_thread()]


async def blocked(source: TokenSource, timeout_s: float) -> OAuthToken:
    """What another thread gets while this loop does nothing."""
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: source.wait(source.ask(timeout_s), timeout_s)).result()


async def test_a_plain_function_answers_while_the_loop_is_blocked() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give, wall_s=issuer.wall_s)
    await token_of(source, LONG_S)
    issuer.now_s += 1_000
    assert (await blocked(source, LONG_S)).value == "token-2"


async def test_a_coroutine_cannot_while_the_loop_is_blocked_and_that_is_told() -> None:
    issuer = Issuer()
    source = TokenSource(issuer.give_soon, wall_s=issuer.wall_s)
    await token_of(source, LONG_S)
    issuer.now_s += 1_000
    with pytest.raises(
        TokenError, match=r"could not run for 0\.1 s, because the event loop is block"
    ):
        await blocked(source, 0.1)
    # It was only late.
    assert (await token_of(source, LONG_S)).value == "token-2"


async def test_a_plain_function_that_hangs_costs_one_thread() -> None:
    hangs, count = threading.Event(), 0

    def give() -> str:
        nonlocal count
        count += 1
        hangs.wait()
        return "late"

    source = TokenSource(give)
    began_s = time.monotonic()
    for _ in range(5):
        with pytest.raises(TokenError, match="did not return a token within 0"):
            await token_of(source, 0.05)
    assert count == 1
    assert time.monotonic() - began_s < 20
    hangs.set()
    attempt = source._attempt
    assert attempt is not None
    await asyncio.to_thread(attempt.future.result, LONG_S)
    assert (await token_of(source, LONG_S)).value == "late"
    assert count == 2


def test_a_system_without_another_thread_is_asked_again_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    source = TokenSource(lambda: "token")
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        with pytest.raises(TokenError, match="can't start new thread"):
            source.wait(source.ask(1e6), 0)
    assert source.wait(source.ask(LONG_S), LONG_S).value == "token"


def test_without_a_loop_a_coroutine_cannot_run() -> None:
    async def give() -> str:
        return "never"

    source = TokenSource(give)
    with pytest.raises(TokenError, match="no event loop to run it"):
        source.wait(source.ask(1), 1)
    assert TokenSource(lambda: "a").wait(TokenSource(lambda: "a").ask(9), 9).value == "a"


def test_a_loop_that_has_ended_does_not_stand_in_the_way_of_the_next() -> None:
    async def give() -> str:
        await asyncio.sleep(0)
        return "token"

    source = TokenSource(give)

    async def begin() -> None:
        source.ask(1e6)

    asyncio.run(begin())
    assert asyncio.run(token_of(source, LONG_S)).value == "token"


@virtual
async def test_a_token_is_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def give() -> str:
        return "hidden token"

    with pytest.raises(TokenError) as failed:
        await token_of(TokenSource(give), 9)
    assert "hidden" not in str(failed.value)
    assert "hidden" not in caplog.text
