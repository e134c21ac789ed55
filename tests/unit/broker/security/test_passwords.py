"""Passwords that wait to be checked: a flood of wrong ones does not keep a right one out."""

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kohort.broker.core.security.sasl import WRONG as WORDS
from kohort.broker.core.security.sasl import Credential, Done, PlainLogin, SaslFailure
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.security.passwords import THREADS, WAITING_MAX, Passwords, PlainExchange
from kohort.broker.security.users import CredentialKey, Users
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.scram import keys_of, salted_password
from kohort.testing.virtual_clock import VirtualClock
from tests.support.virtual_time import virtual

WORK_MS = 10
"""What a check takes."""
T = TypeVar("T")
SCRAM = "SCRAM-SHA-256"
FLOOD = "10.0.0.66"
RIGHT = PlainLogin("", "alice", b"secret")
WRONG = PlainLogin("", "alice", b"guess")


class SlowCrew:
    """Checks take virtual time."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.at_once_max = 0

    def begin(self, work: Callable[[], T]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self.begun += 1
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        loop.call_later(WORK_MS / 1_000, self._end, done, work)
        return done

    def _end(self, done: asyncio.Future[T], work: Callable[[], T]) -> None:
        self.at_once -= 1
        done.set_result(work())

    def close(self) -> None:
        """Nothing is left to close."""


class World:
    """Passwords of one user, on virtual time."""

    def __init__(self, users: Users, clock: VirtualClock) -> None:
        self.clock = clock
        self.crew = SlowCrew()
        self.users = users
        self.disabled: set[str] = set()
        self.passwords = Passwords(
            users, self.clock, self.crew, is_disabled=self.disabled.__contains__
        )

    def flood(self, ip: str, count: int) -> list[Deferred[Done]]:
        """The checks of so many wrong passwords that were not refused at once."""
        waiting = []
        for _ in range(count):
            try:
                outcome = self.passwords.check(WRONG, ip)
            except SaslFailure as refused:
                assert str(refused) == "too many queued password checks"  # noqa: PT017 - with others.
            else:
                assert isinstance(outcome, Deferred)
                waiting.append(outcome)
        return waiting

    async def log_in(self, ip: str) -> int:
        """Milliseconds until a right password was let in."""
        began_ms = self.clock.monotonic_ms()
        outcome = self.passwords.check(RIGHT, ip)
        done = await outcome if isinstance(outcome, Deferred) else outcome
        assert done.user == "alice"
        return self.clock.monotonic_ms() - began_ms


def set_password(users: Users, password: bytes) -> None:
    salt = b"0123456789"
    keys = keys_of("sha256", salted_password("sha256", password, salt, 1))
    users.apply([(CredentialKey("alice", SCRAM), Credential(salt, keys, 1))])


@pytest.fixture
def users() -> Iterator[Users]:
    store = MetadataStore(None, new_cluster_id="c")
    users = Users(store)
    users.load_secret()
    set_password(users, b"secret")
    yield users
    store.close()


@virtual
async def test_a_flood_of_one_address_does_not_keep_others_out(
    users: Users, clock: VirtualClock
) -> None:
    world = World(users, clock)
    for _ in range(20):
        world.flood(FLOOD, 2 * WAITING_MAX)
        world.passwords._forget("alice")
        # One that is at work, and its own.
        assert await world.log_in("10.0.0.1") <= 2 * WORK_MS
    assert world.crew.at_once_max == THREADS


@virtual
async def test_a_flood_of_a_hundred_addresses_lets_each_have_a_turn(
    users: Users, clock: VirtualClock
) -> None:
    world = World(users, clock)
    addresses = [f"10.1.0.{number}" for number in range(100)]
    for address in addresses * 10:
        world.flood(address, 1)
    assert world.passwords.waiting_count == WAITING_MAX
    turns_ms = (len(addresses) + 1) * WORK_MS // THREADS
    assert await world.log_in("10.0.0.1") <= turns_ms + 2 * WORK_MS


@virtual
async def test_a_crowd_behind_one_address_is_let_in_where_no_one_else_waits(
    users: Users, clock: VirtualClock
) -> None:
    world = World(users, clock)
    crowd = [world.passwords.check(RIGHT, FLOOD) for _ in range(WAITING_MAX)]
    for one in crowd:
        assert isinstance(one, Deferred)
        assert (await one).user == "alice"
    assert world.crew.begun == WAITING_MAX


@virtual
async def test_who_gives_up_his_place_is_told_no(users: Users, clock: VirtualClock) -> None:
    world = World(users, clock)
    waiting = world.flood(FLOOD, 2 * WAITING_MAX)
    assert len(waiting) == WAITING_MAX + THREADS
    assert isinstance(world.passwords.check(RIGHT, "10.0.0.1"), Deferred)
    assert world.passwords.waiting_count == WAITING_MAX
    assert [one.is_done for one in waiting] == [False] * (len(waiting) - 1) + [True]
    with pytest.raises(SaslFailure, match="too many"):
        waiting[-1].result()


@virtual
async def test_who_is_gone_waits_no_more(users: Users, clock: VirtualClock) -> None:
    world = World(users, clock)
    for one in world.flood(FLOOD, WAITING_MAX):
        one.cancel()
    assert world.passwords.waiting_count == 0
    await asyncio.sleep(1)
    assert world.crew.begun == THREADS


@virtual
async def test_a_password_that_is_changed_while_it_waits_is_wrong(
    users: Users, clock: VirtualClock
) -> None:
    world = World(users, clock)
    world.flood(FLOOD, THREADS)
    waiting = world.passwords.check(RIGHT, "10.0.0.1")
    assert isinstance(waiting, Deferred)
    set_password(world.users, b"another")
    with pytest.raises(SaslFailure, match="wrong password"):
        await waiting


@pytest.mark.parametrize("new", [b"another", None])
@virtual
async def test_a_remembered_password_ends_with_its_change(
    users: Users, clock: VirtualClock, new: bytes | None
) -> None:
    world = World(users, clock)
    await world.log_in("10.0.0.1")
    assert await world.log_in("10.0.0.1") == 0
    if new is None:
        world.users.apply([(CredentialKey("alice", SCRAM), None)])
    else:
        set_password(world.users, new)
    outcome = world.passwords.check(RIGHT, "10.0.0.1")
    assert isinstance(outcome, Deferred)
    with pytest.raises(SaslFailure):
        await outcome


@virtual
async def test_a_password_is_remembered_for_a_minute_and_no_longer(
    users: Users, clock: VirtualClock
) -> None:
    world = World(users, clock)
    await world.log_in("10.0.0.1")
    await asyncio.sleep(59.9)
    assert await world.log_in("10.0.0.1") == 0
    await asyncio.sleep(0.1)
    assert await world.log_in("10.0.0.1") == WORK_MS


@virtual
async def test_nothing_is_begun_once_it_is_closed(users: Users, clock: VirtualClock) -> None:
    world = World(users, clock)
    world.flood(FLOOD, 10)
    world.passwords.close()
    with pytest.raises(SaslFailure):
        world.passwords.check(RIGHT, "10.0.0.1")
    await asyncio.sleep(1)
    assert world.crew.begun == THREADS


@virtual
async def test_the_password_of_a_disabled_user_is_as_much_work_as_a_wrong_one(
    users: Users, clock: VirtualClock
) -> None:
    world = World(users, clock)

    async def refused(outcome: Done | Deferred[Done]) -> str:
        began_ms = world.clock.monotonic_ms()
        assert isinstance(outcome, Deferred)
        with pytest.raises(SaslFailure) as caught:
            await outcome
        assert caught.value.client_message == WORDS
        assert world.clock.monotonic_ms() - began_ms == WORK_MS
        return str(caught.value)

    await world.log_in("10.0.0.1")
    assert await world.log_in("10.0.0.1") == 0
    world.disabled.add("alice")
    # It was remembered a moment ago.
    assert await refused(world.passwords.check(RIGHT, "10.0.0.1")) == "the user is disabled"
    given = PlainExchange(world.passwords, {"alice": "secret"}, "10.0.0.1")
    assert await refused(given.step(b"\0alice\0secret")) == "the user is disabled"
    world.disabled.clear()
    assert await refused(world.passwords.check(WRONG, "10.0.0.1")) == "wrong password"
    assert await world.log_in("10.0.0.1") == 0
