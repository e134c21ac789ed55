"""What a join says of its reason, by tag and by text."""

import pytest

from kohort.groups.reasons import FORCING, ReasonSource, classify_text, state_reason
from kohort.protocol.join_reason import JoinReason

UNKNOWN = JoinReason.UNKNOWN


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # As the Java client words them, 2.8 to 4.4.
        (
            "cached metadata has changed from (version1: {t=3}) to (version2: {t=4})",
            JoinReason.TOPIC_METADATA_CHANGE,
        ),
        (
            "subscription has changed from [t] at the beginning of the rebalance to [t, u]",
            JoinReason.SUBSCRIPTION_CHANGE,
        ),
        (
            "need to revoke partitions [t-0] as indicated by the current assignment and re-join",
            JoinReason.PARTITIONS_REVOKED,
        ),
        ("rebalance enforced by user", JoinReason.ENFORCED),
        ("group is already rebalancing", JoinReason.GROUP_REBALANCING),
        ("need to re-join with the given member-id: c-1", JoinReason.RESTART),
        (
            "encountered UnknownMemberIdException from SYNC_GROUP response",
            JoinReason.MEMBERSHIP_LOST,
        ),
        ("encountered ILLEGAL_GENERATION from HEARTBEAT response", JoinReason.MEMBERSHIP_LOST),
        ("rebalance failed due to 'no' (DisconnectException)", JoinReason.MEMBERSHIP_LOST),
        ("consumer pro-actively leaving the group", JoinReason.MEMBERSHIP_LOST),
        ("because I can", UNKNOWN),
        ("OK", UNKNOWN),
        ("", UNKNOWN),
        (None, UNKNOWN),
    ],
)
def test_a_text_suggests_a_reason(text: str | None, reason: JoinReason) -> None:
    assert classify_text(text) is reason


def test_without_tag_and_text_nothing_is_stated() -> None:
    stated = state_reason(0, None)
    assert (stated.reason, stated.source, stated.text) == (UNKNOWN, ReasonSource.NONE, None)


@pytest.mark.parametrize("reason", [reason for reason in JoinReason if reason])
def test_a_tag_decides(reason: JoinReason) -> None:
    stated = state_reason(int(reason), "rebalance enforced by user")
    assert (stated.reason, stated.source) == (reason, ReasonSource.TAG)
    assert stated.decisive is reason
    assert stated.text == "rebalance enforced by user"


@pytest.mark.parametrize("value", [10, 63, 64, 127, -1, -128])
def test_a_value_that_means_nothing_is_unknown_and_kept_for_the_history(value: int) -> None:
    stated = state_reason(value, None)
    assert stated.reason is stated.decisive is UNKNOWN
    assert stated.raw == value


def test_what_a_text_suggests_never_decides() -> None:
    stated = state_reason(0, "rebalance enforced by user")
    assert (stated.reason, stated.source) == (JoinReason.ENFORCED, ReasonSource.INFERRED)
    assert stated.decisive is UNKNOWN


def test_a_long_text_is_cut() -> None:
    assert state_reason(0, "x" * 10_000).text == "x" * 255


def test_the_values_are_fixed() -> None:
    assert [(reason.value, reason.name) for reason in JoinReason] == [
        (0, "UNKNOWN"),
        (1, "RESTART"),
        (2, "TOPIC_METADATA_CHANGE"),
        (3, "UPGRADE"),
        (4, "SUBSCRIPTION_CHANGE"),
        (5, "PARTITIONS_REVOKED"),
        (6, "ENFORCED"),
        (7, "GROUP_REBALANCING"),
        (8, "MEMBERSHIP_LOST"),
        (9, "ASSIGNOR_STATE_CHANGE"),
    ]


def test_these_force_a_rebalance_whichever_member_states_them() -> None:
    assert {reason.value for reason in FORCING} == {3, 4, 5, 6, 9}
