import itertools

from kohort.client.core.group.rejoin import FAILURES_LENGTH_MAX, TEXT_LENGTH_MAX, Rejoin, combined
from kohort.protocol.join_reason import JoinReason


def wish(reason: JoinReason, text: str = "") -> Rejoin:
    return Rejoin(reason, text or reason.name)


IN_ORDER = [
    wish(reason)
    for reason in (
        JoinReason.ENFORCED,
        JoinReason.ASSIGNOR_STATE_CHANGE,
        JoinReason.UPGRADE,
        JoinReason.SUBSCRIPTION_CHANGE,
        JoinReason.TOPIC_METADATA_CHANGE,
        JoinReason.PARTITIONS_REVOKED,
        JoinReason.MEMBERSHIP_LOST,
        JoinReason.RESTART,
        JoinReason.GROUP_REBALANCING,
    )
]


def test_of_two_reasons_the_weightier_stays_whichever_came_first() -> None:
    for heavier, lighter in itertools.combinations(IN_ORDER, 2):
        assert combined(heavier, lighter) == heavier
        assert combined(lighter, heavier) == heavier


def test_every_reason_that_may_be_sent_has_a_weight() -> None:
    assert {one.reason for one in IN_ORDER} == set(JoinReason) - {JoinReason.UNKNOWN}


def test_of_two_enforced_ones_the_last_text_wins() -> None:
    assert combined(wish(JoinReason.ENFORCED, "a"), wish(JoinReason.ENFORCED, "b")).text == "b"


def test_the_first_word_of_a_rebalance_stays() -> None:
    first = wish(JoinReason.GROUP_REBALANCING, "first")
    assert combined(first, wish(JoinReason.GROUP_REBALANCING, "second")) == first
    assert combined(None, first) == first


def test_a_failure_is_added_to_the_text_and_the_reason_stays() -> None:
    failed = wish(JoinReason.ENFORCED, "new rules").after_failure("disconnected")
    assert failed == (JoinReason.ENFORCED, "new rules; disconnected")


def test_the_broker_gets_the_beginning_of_a_long_text() -> None:
    assert wish(JoinReason.ENFORCED, "ä" * 300).wire_text == "ä" * TEXT_LENGTH_MAX


def test_a_text_does_not_grow_for_as_long_as_attempts_fail() -> None:
    failed = wish(JoinReason.ENFORCED, "new rules")
    for _ in range(1_000):
        failed = failed.after_failure("JoinGroup failed: A").after_failure("JoinGroup failed: B")
    assert failed.text.startswith("new rules; JoinGroup failed: A; JoinGroup failed: B")
    assert len(failed.text) < FAILURES_LENGTH_MAX + 100
    again = wish(JoinReason.ENFORCED, "new rules")
    for _ in range(3):
        again = again.after_failure("JoinGroup failed: A")
    assert again.text == "new rules; JoinGroup failed: A"
