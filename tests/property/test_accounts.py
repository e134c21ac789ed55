"""Accounts, which compute almost nothing, against the plain arithmetic of every use."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kohort.broker.core.security.account import (
    FETCH_KEY,
    MICROSECONDS_OF_A_PERCENT,
    PRODUCE_KEY,
    Rate,
)
from kohort.broker.core.security.quotas import (
    CONSUMER,
    PRODUCER,
    REQUEST,
    Entity,
    Quotas,
)
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.broker.security.rules import Disk
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.testing.virtual_clock import VirtualClock

WINDOW_MS = 1_000


limits = st.one_of(
    st.integers(1, 50).map(float),
    st.floats(0.001, 100, allow_nan=False),
    st.sampled_from([1e12, 2.0**63, 1e300]),
)
pauses_ms = st.one_of(
    st.just(0),
    st.integers(0, 30),
    st.integers(WINDOW_MS - 2, WINDOW_MS + 2),
    st.integers(0, 14 * WINDOW_MS),
    st.integers(9 * WINDOW_MS, 11 * WINDOW_MS),
)
parts = st.one_of(st.just(0.0), st.sampled_from([0.1, 0.5, 0.8, 0.9]), st.floats(0, 3))
"""Uses, as parts of what is allowed in all windows."""
steps = st.lists(
    st.one_of(
        st.tuples(st.just("use"), pauses_ms, parts),
        st.tuples(st.just("take back"), pauses_ms, parts),
        st.tuples(st.just("limit"), pauses_ms, limits),
    ),
    max_size=60,
)


@given(
    steps=steps,
    limit=limits,
    key=st.sampled_from([PRODUCER, REQUEST]),
    windows=st.integers(1, 12),
    began_ms=st.sampled_from([0, 1, 86_400_000]),
)
def test_a_client_is_told_to_wait_as_long_as_by_the_plain_arithmetic(
    steps: list[tuple[str, int, float]], limit: float, key: str, windows: int, began_ms: int
) -> None:
    book, plain = Quotas(windows, WINDOW_MS), Rate(windows, WINDOW_MS)
    book.set(Entity("u"), {key: limit})
    accounts = book.accounts("u", "c")
    now_ms = began_ms
    for what, pause_ms, value in steps:
        now_ms += pause_ms
        if what == "limit":
            limit = value
            book.set(Entity("u"), {key: limit})
            assert not accounts.is_current
            accounts = book.accounts("u", "c")
            continue
        a_second = limit * MICROSECONDS_OF_A_PERCENT if key == REQUEST else limit
        amount = int(min(value * a_second * windows * WINDOW_MS / 1_000, 1e18))
        amounts = (amount, -amount) if what == "take back" else (amount,)
        account = accounts.request if key == REQUEST else accounts.producer
        assert account is not None
        for one in amounts:
            plain.record(one, now_ms)
            expected = plain.throttle_ms(a_second, now_ms)
            if key == REQUEST:
                expected = min(expected, WINDOW_MS)
            assert account.charge(one, now_ms) == expected


HEARTBEAT_KEY = 12
LIMITS = {REQUEST: 1.0, PRODUCER: 10_000.0, CONSUMER: 10_000.0}
"""Time is a hundredth, 10,000 us a second."""
LOWER = {key: limit / 2 for key, limit in LIMITS.items()}


@pytest.fixture
def client_quotas(tmp_path: Path) -> Iterator[ClientQuotas]:
    store = MetadataStore(tmp_path, new_cluster_id="accounts")
    yield ClientQuotas(Quotas(), store, cast("Disk", None))
    store.close()


class Plain:
    """What a request is charged, without any cleverness."""

    def __init__(self) -> None:
        self.rates = {key: Rate() for key in LIMITS}
        self.limits = LIMITS

    def charge(self, key: int, size: int, took_us: int, answer: int | None, now_ms: int) -> int:
        throttle_ms = 0
        if answer is not None:
            throttle_ms = min(self._use(REQUEST, took_us, now_ms), WINDOW_MS)
        if key == PRODUCE_KEY:
            throttle_ms = max(throttle_ms, self._use(PRODUCER, size, now_ms))
        if key == FETCH_KEY and answer is not None:
            throttle_ms = max(throttle_ms, self._use(CONSUMER, answer, now_ms))
            if throttle_ms:
                self.rates[CONSUMER].record(-answer, now_ms)
        return throttle_ms

    def _use(self, key: str, amount: int, now_ms: int) -> int:
        a_second = self.limits[key] * (MICROSECONDS_OF_A_PERCENT if key == REQUEST else 1)
        self.rates[key].record(amount, now_ms)
        return self.rates[key].throttle_ms(a_second, now_ms)


class Asked(NamedTuple):
    """A request, and how long after the one before it comes."""

    pause_ms: int
    key: int
    size: int
    took_us: int
    answer: list[int] | None
    """Sizes of the parts of its answer; None if there is none."""
    is_parked: bool = False
    """Whether its handler waits, and limits are changed meanwhile."""


sizes = st.one_of(st.sampled_from([0, 1_000, 10_000, 90_000]), st.integers(0, 120_000))
requests = st.builds(
    Asked,
    pauses_ms,
    st.sampled_from([PRODUCE_KEY, FETCH_KEY, HEARTBEAT_KEY]),
    sizes,
    sizes,
    st.one_of(st.none(), st.lists(sizes, min_size=1, max_size=2)),
    st.booleans(),
)


def of_each_quota(*uses: tuple[int, int]) -> list[list[Asked]]:
    """The same uses, (pause, amount), of bytes either way and of time."""
    return [
        [Asked(pause_ms, PRODUCE_KEY, amount, 0, [0]) for pause_ms, amount in uses],
        [Asked(pause_ms, FETCH_KEY, 0, 0, [amount]) for pause_ms, amount in uses],
        [Asked(pause_ms, HEARTBEAT_KEY, 0, amount, [0]) for pause_ms, amount in uses],
    ]


def examples(test: Callable[..., None]) -> Callable[..., None]:
    """Cases that chance seldom finds."""
    found = [
        # A sample is kept for as long as its last use.
        *of_each_quota((0, 90_000), (900, 10_000), (10_200, 20_000)),
        # It is over before all that is left is used.
        *of_each_quota((0, 50_000), (1_000, 20_000), (500, 20_000), (10_000, 90_000)),
        # Data that is not sent is not charged.
        [
            Asked(0, FETCH_KEY, 0, 0, [10]),
            Asked(0, FETCH_KEY, 0, 105_000, [60_000]),
            Asked(600, FETCH_KEY, 0, 0, [60_000]),
        ],
    ]
    for asked in found:
        test = example(asked=asked)(test)
    return test


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(requests, max_size=60))
@examples
def test_a_request_is_charged_as_by_the_plain_arithmetic(
    client_quotas: ClientQuotas, asked: list[Asked]
) -> None:
    quotas = client_quotas.quotas = Quotas()
    quotas.set(Entity("ANONYMOUS"), LIMITS)
    clock, connection, plain = VirtualClock(), ConnectionInfo("/::1"), Plain()
    for pause_ms, key, size, took_us, answer, is_parked in asked:
        clock.advance(pause_ms)
        if is_parked:
            plain.limits = LOWER if plain.limits is LIMITS else LIMITS
            quotas.set(Entity("ANONYMOUS"), plain.limits)
        buffers = None if answer is None else [bytes(one) for one in answer]
        accounts = client_quotas.accounts(connection, "c")
        told = accounts.charge(key, size, (took_us + 0.5) / 1e6, clock.monotonic_s(), buffers)
        byte_count = None if answer is None else sum(answer)
        assert told == plain.charge(key, size, took_us, byte_count, clock.monotonic_ms())


def test_accounts_belong_to_one_client_until_limits_change() -> None:
    book = Quotas()
    book.set(Entity("u"), {PRODUCER: 1.0, CONSUMER: 3.0, REQUEST: 1.0})
    accounts = book.accounts("u", "c")
    for client_id in (None, "", "d"):
        assert not accounts.belong_to(client_id)
        assert not accounts.allow_at_once(client_id, 0, 0)
    assert accounts.belong_to("c")
    assert accounts.charge(PRODUCE_KEY, 10, 0.0, 0.0, []) == 0
    assert accounts.charge(PRODUCE_KEY, 1, 0.0, 0.0, []) == 1_000
    assert accounts.allow_at_once("c", 30, 30)
    assert not accounts.allow_at_once("c", 31, 1)
    assert not accounts.allow_at_once("c", 1, 31)
    book.set(Entity("u"), {PRODUCER: 1.0})
    assert not accounts.belong_to("c")
    assert not accounts.allow_at_once("c", 0, 0)


def test_a_client_without_an_id_has_accounts() -> None:
    book = Quotas()
    book.set(Entity("u"), {REQUEST: 1.0})
    accounts = book.accounts("u", "")
    assert accounts.belong_to(None)
    assert accounts.charge(HEARTBEAT_KEY, 9, 0.3, 5.0, [b""]) == 1_000
    assert accounts.allow_at_once(None, 2**31 - 1, 2**31 - 1)


@pytest.mark.parametrize(
    ("key", "limit", "at_once"),
    [
        (CONSUMER, 2.0**63, 2**31 - 1),
        (CONSUMER, 1.0, 10),
        (REQUEST, 5e-324, 2**31 - 1),
        (REQUEST, 1.7e308, 2**31 - 1),
    ],
)
def test_no_limit_is_too_large_or_too_small(key: str, limit: float, at_once: int) -> None:
    book = Quotas()
    book.set(Entity("u"), {key: limit})
    accounts = book.accounts("u", "c")
    assert accounts.at_once == at_once
    told = accounts.charge(FETCH_KEY, 0, 0.001, 0.0, [bytes(100), bytes(20)])
    assert told == {2.0**63: 0, 1.0: 110_000, 5e-324: WINDOW_MS, 1.7e308: 0}[limit]


def test_the_longest_time_is_one_that_a_response_can_tell() -> None:
    book = Quotas()
    book.set(Entity("u"), {PRODUCER: 1.0})
    accounts = book.accounts("u", "c")
    assert accounts.charge(PRODUCE_KEY, 10**9, 0.0, 0.0, []) == 2**31 - 1
