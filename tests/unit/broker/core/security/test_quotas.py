import random

import pytest

from kohort.broker.core.security import quotas
from kohort.broker.core.security.account import FETCH_KEY, SHARE_FETCH_KEY, Rate
from kohort.broker.core.security.quotas import (
    CONNECTION,
    CONSUMER,
    DEFAULT,
    MUTATION,
    PRODUCER,
    REQUEST,
    Entity,
    QuotaError,
    Quotas,
    check_limit,
    entity_of,
)
from tests.support.measures.memory import traced_memory


def test_what_kafka_was_seen_to_answer() -> None:
    """10,000 bytes a second: 20 and 60 kB pass, another 60 kB is 3,867 ms too early."""
    rate = Rate()
    for at_ms, amount, expected in ((0, 20_000, 0), (60, 60_000, 0), (133, 60_000, 3_867)):
        rate.record(amount, at_ms)
        assert rate.throttle_ms(10_000, at_ms) == expected


def test_a_client_that_waits_as_long_as_it_is_told_is_within_its_limit_again() -> None:
    rate = Rate()
    rate.record(140_000, 0)
    throttle_ms = rate.throttle_ms(10_000, 0)
    assert throttle_ms == 4_000
    assert rate.throttle_ms(10_000, throttle_ms + 10_000) == 0


class Oracle:
    """Every use by itself, put into samples again for each question."""

    def __init__(self) -> None:
        self.uses: list[tuple[int, int]] = []

    def throttle_ms(self, limit: int, now_ms: int) -> int:
        samples: list[list[tuple[int, int]]] = []
        for at_ms, amount in self.uses:
            if samples and at_ms - samples[-1][0][0] < 1_000:
                samples[-1].append((at_ms, amount))
                continue
            samples = [one for one in samples if at_ms - one[-1][0] < 11_000]
            samples.append([(at_ms, amount)])
        samples = [one for one in samples if now_ms - one[-1][0] < 11_000]
        if not samples:
            return 0
        elapsed = now_ms - samples[0][0][0]
        window = elapsed + max(0, 10 - elapsed // 1_000) * 1_000
        used = sum(amount for one in samples for _, amount in one)
        rate = used / window * 1_000
        return max(0, round((rate - limit) / limit * window)) if rate > limit else 0


def test_throttles_are_those_of_all_uses_counted_again(long_form: bool) -> None:
    for seed in range(2_000 if long_form else 40):
        chance = random.Random(seed)
        rate, oracle, now_ms = Rate(), Oracle(), 0
        limit = chance.choice([1_000, 10_000, 1_000_000])
        for _ in range(100):
            now_ms += chance.choice([0, 1, 10, 100, 999, 1_000, 1_001, 5_000, 12_000])
            amount = chance.randrange(limit * 4)
            rate.record(amount, now_ms)
            oracle.uses.append((now_ms, amount))
            expected = oracle.throttle_ms(limit, now_ms)
            # What is rounded is computed in another order.
            assert abs(rate.throttle_ms(limit, now_ms) - expected) <= 1, seed


def test_the_first_limit_that_there_is_holds() -> None:
    book = Quotas()
    order = [
        (Entity(None, DEFAULT), ("", "c")),
        (Entity(None, "c"), ("", "c")),
        (Entity(DEFAULT), ("u", "")),
        (Entity(DEFAULT, DEFAULT), ("u", "c")),
        (Entity(DEFAULT, "c"), ("u", "c")),
        (Entity("u"), ("u", "")),
        (Entity("u", DEFAULT), ("u", "c")),
        (Entity("u", "c"), ("u", "c")),
    ]
    assert book.account(PRODUCER, "u", "c") is None
    for number, (entity, names) in enumerate(order, 1):
        book.set(entity, {PRODUCER: number})
        account = book.account(PRODUCER, "u", "c")
        assert account is not None
        assert account.limit == number
        assert [*book._used][-1] == (PRODUCER, *names)
        assert book.account(CONSUMER, "u", "c") is None


def test_a_default_limits_each_user_and_not_all_together() -> None:
    book = Quotas()
    book.set(Entity(DEFAULT), {PRODUCER: 1_000})
    assert book.charge(PRODUCER, "a", "c", 10_500, 0) > 0
    assert book.charge(PRODUCER, "b", "c", 9_500, 0) == 0
    # The same user by another client id.
    assert book.charge(PRODUCER, "a", "d", 1, 0) > 0


def test_a_share_fetch_is_charged_although_its_data_is_sent() -> None:
    book = Quotas()
    book.set(Entity("u"), {CONSUMER: 1_000})
    accounts = book.accounts("u", "c")
    too_much = [bytes(20_000)]
    assert accounts.charge(FETCH_KEY, 0, 0.0, 0.0, too_much) == 10_000
    assert accounts.charge(FETCH_KEY, 0, 0.0, 0.0, [b""]) == 0
    # Its records have been acquired, so the response must not be replaced by an empty one.
    assert accounts.charge(SHARE_FETCH_KEY, 0, 0.0, 0.0, too_much) == 10_000
    assert accounts.charge(FETCH_KEY, 0, 0.0, 0.0, [b""]) == 10_000


def test_a_change_of_limits_holds_for_the_next_request_of_a_client() -> None:
    limits = Quotas()
    first = limits.accounts("u", "c")
    assert (first.request, first.producer, first.consumer) == (None, None, None)
    assert limits.accounts("u", "c") is first
    limits.set(Entity("u"), {PRODUCER: 100.0})
    assert not first.is_current
    second = limits.accounts("u", "c")
    assert (second.request, second.consumer) == (None, None)
    assert second.producer is limits.account(PRODUCER, "u", "c")
    limits.set(Entity("u", "c"), {CONSUMER: 7.0, REQUEST: 5.0})
    assert not second.is_current
    third = limits.accounts("u", "c")
    accounts = (third.request, third.producer, third.consumer)
    assert [one.limit if one else None for one in accounts] == [5.0, 100.0, 7.0]
    limits.set(Entity("u"), {})
    assert not third.is_current
    assert limits.accounts("u", "c").producer is None


def test_accounts_are_looked_up_again_once_others_may_have_been_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    book = Quotas()
    book.set(Entity(DEFAULT), {PRODUCER: 1})
    kept = book.accounts("a", "")
    book.account(PRODUCER, "b", "")
    assert not kept.is_current
    monkeypatch.setattr(quotas, "HOLDING_MAX", 2)
    kept = book.accounts("a", "")
    book.accounts("b", "")
    assert book.accounts("a", "") is kept
    book.accounts("b", "another client")
    assert not kept.is_current
    assert book.accounts("a", "") is not kept


def test_time_is_charged_in_percent_and_held_back_for_a_second_at_most() -> None:
    book = Quotas()
    book.set(Entity("u"), {REQUEST: 1})
    assert book.charge(REQUEST, "u", "", 99_000, 0) == 0
    assert book.charge(REQUEST, "u", "", 2_000, 0) == 100
    assert book.charge(REQUEST, "u", "", 900_000, 0) == 1_000


def test_a_charge_can_be_taken_back() -> None:
    book = Quotas()
    book.set(Entity("u"), {CONSUMER: 1_000})
    assert book.charge(CONSUMER, "u", "", 20_000, 0) == 10_000
    assert book.charge(CONSUMER, "u", "", -20_000, 0) == 0
    account = book.account(CONSUMER, "u", "")
    assert account is not None
    assert account.at_once == 10_000


def test_accounts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "ACCOUNTS_MAX", 3)
    book = Quotas()
    book.set(Entity(DEFAULT), {PRODUCER: 1})
    for name in ("a", "b", "c", "a", "d", "e"):
        book.charge(PRODUCER, name, "", 1, 0)
    assert [name[1] for name in book._used] == ["a", "d", "e"]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("planet", "x")],
        [("user", "")],
        [("user", "a"), ("user", "b")],
        [("ip", "::1"), ("user", "a")],
        [("ip", "localhost")],
        [("ip", "0:0::1")],
    ],
    ids=["none", "unknown", "empty", "twice", "address of a user", "a name", "written otherwise"],
)
def test_an_entity_that_cannot_be_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(QuotaError):
        entity_of(parts)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("no_such_rate", 1), (PRODUCER, 0), (PRODUCER, -1), (PRODUCER, 1.5), (PRODUCER, 2.0**63),
        (REQUEST, float("nan")), (REQUEST, float("inf")),
    ],
    ids=str,
)  # fmt: skip
def test_a_limit_that_cannot_be_is_refused(key: str, value: float) -> None:
    with pytest.raises(QuotaError):
        check_limit(Entity("u"), key, value)
    check_limit(Entity("u"), REQUEST, 0.5)


def test_addresses_have_limits_of_their_own() -> None:
    check_limit(Entity(ip="::1"), CONNECTION, 2**31 - 1)
    for entity, key in ((Entity(ip="::1"), PRODUCER), (Entity("u"), CONNECTION)):
        with pytest.raises(QuotaError):
            check_limit(entity, key, 1)
    with pytest.raises(QuotaError):
        check_limit(Entity(ip="::1"), CONNECTION, 2**31)


def test_an_address_has_its_own_limit_or_that_of_all() -> None:
    book = Quotas()
    assert book.connection_limit("::1") is None
    book.set(Entity(ip=DEFAULT), {CONNECTION: 9})
    book.set(Entity(ip="::1"), {CONNECTION: 1})
    assert (book.connection_limit("::1"), book.connection_limit("::2")) == (1, 9)


def test_partitions_are_taken_from_what_was_saved_and_what_is_owed_is_earned() -> None:
    """What Kafka was seen to answer: 1 a second, 11 saved; 30 are made, then 18,967 ms to wait."""
    book = Quotas()
    book.set(Entity("u"), {MUTATION: 1})
    assert book.take_mutations("u", "c", 0, 0) == 0
    assert book.take_mutations("u", "c", 30, 0) == 19_000
    assert book.take_mutations("u", "other client", 0, 33) == 18_967
    assert book.take_mutations("someone else", "c", 1_000, 33) == 0
    assert book.take_mutations("u", "c", 0, 19_000) == 0
    assert book.take_mutations("u", "c", 12, 100_000) == 1_000


def test_long_client_ids_have_accounts_of_their_own_and_are_not_kept() -> None:
    limited = Quotas()
    limited.set(Entity(client_id=DEFAULT), {REQUEST: 1.0, PRODUCER: 1_000})
    limited.set(Entity(client_id=DEFAULT, user=DEFAULT), {MUTATION: 1.0})
    exact = "x" * 30_000
    limited.set(Entity(client_id=exact), {PRODUCER: 9})
    assert limited.accounts("alice", exact).producer is not None
    assert limited.charge(PRODUCER, "alice", exact, 1_000, 0) > 0
    with traced_memory() as taken:
        for number in range(300):
            client_id = f"{number:030000}"
            assert limited.accounts("alice", client_id) is limited.accounts("alice", client_id)
            assert limited.charge(PRODUCER, "alice", client_id, 9_000, 0) == 0
            assert limited.charge(PRODUCER, "alice", client_id, 9_000, 0) > 0
            limited.take_mutations("alice", client_id, 1, 0)
        held_bytes = taken()
    # With the ids it would be 9 MB.
    assert held_bytes < 2_000_000
