"""Which clients the HTTP port lets in by a token, and after how long it turns the others away."""

import asyncio

from kohort.broker.core.security.addresses import FailureDelays
from kohort.broker.core.security.sasl import Done, PlainLogin
from kohort.broker.security.http_guard import HttpGuard
from kohort.testing.virtual_clock import VirtualClock, VirtualClockLoop

DELAY_MS = 100


def test_a_good_token_of_a_disabled_user_lets_no_one_in() -> None:
    clock = VirtualClock()
    guard = HttpGuard(
        ways=("bearer",),
        check_password=_no_password,
        check_token=lambda user: Done(b"", user),
        clock=clock,
        delays=FailureDelays(),
        delay_ms=DELAY_MS,
        count=lambda *_: None,
        is_disabled={"mallory"}.__contains__,
    )

    async def play() -> None:
        session = await guard.admit("Bearer alice", "10.0.0.1")
        assert session is not None
        assert session.principal.name == "alice"
        began_ms = clock.monotonic_ms()
        assert await guard.admit("Bearer mallory", "10.0.0.1") is None
        assert clock.monotonic_ms() - began_ms == DELAY_MS

    with asyncio.Runner(loop_factory=lambda: VirtualClockLoop(clock)) as runner:
        runner.run(play())


def _no_password(login: PlainLogin, ip: str) -> Done:
    raise AssertionError("a token is no password")
