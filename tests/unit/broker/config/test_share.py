import dataclasses

import pytest

from kohort.broker.config.broker import BrokerConfig, problems
from kohort.broker.config.share import EARLIEST, LATEST, reset_policy


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("earliest", EARLIEST),
        ("latest", LATEST),
        ("by_duration:PT0S", 0),
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:+pt1h30m", 5_400_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:PT1,5S", 1_500),
        ("by_duration:PT1.123456789S", 1_123),
        ("by_duration:PT1.S", 1_000),
        ("by_duration:P-1DT48H", 86_400_000),
        ("by_duration:-PT-1H", 3_600_000),
        ("by_duration:PT1M-0.5S", 59_500),
        ("by_duration:PT2562047788015215H", 9_223_372_036_854_774_000_000),
    ],
)
def test_a_reset_policy_is_read_as_kafka_reads_it(text: str, policy: int) -> None:
    assert reset_policy(text) == policy


@pytest.mark.parametrize(
    "text",
    [
        "",
        "none",
        "EARLIEST",
        "BY_DURATION:PT1H",
        "PT1H",
        "by_duration",
        *(
            f"by_duration:{duration}"
            for duration in (
                "", " PT1H", "1h", "P", "PT", "P1DT", "P1Y", "P1W", "-PT1H", "PT-1H", "PT.5S",
                "PT1.0123456789S", "PT2562047788015216H", "PT\u0661H",
            )
        ),
    ],
)  # fmt: skip
def test_other_reset_policies_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="The value must be either"):
        reset_policy(text)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"group_share_max_size": 1_000, "group_share_max_share_sessions": 1_000}, None),
        (
            {"group_share_max_share_sessions": 199},
            ("group.share.max.share.sessions", "greater than or equal to", "group.share.max.size"),
        ),
        (
            {"group_share_delivery_count_limit": 4, "group_share_min_delivery_count_limit": 5},
            (
                "group.share.min.delivery.count.limit",
                "less than or equal to",
                "group.share.delivery.count.limit",
            ),
        ),
        (
            {"group_share_session_timeout_ms": 60_001},
            (
                "group.share.session.timeout.ms",
                "less than or equal to",
                "group.share.max.session.timeout.ms",
            ),
        ),
        (
            {"group_share_min_session_timeout_ms": 5_000, "group_share_session_timeout_ms": 5_000},
            ("group.share.heartbeat.interval.ms", "less than", "group.share.session.timeout.ms"),
        ),
    ],
)
def test_settings_of_share_groups_must_not_contradict_each_other(
    changes: dict[str, int], problem: tuple[str, str, str] | None
) -> None:
    found = problems(dataclasses.replace(BrokerConfig(), **changes))
    if problem is None:
        assert found == []
    else:
        first, relation, second = problem
        assert found == [f"{first} must be {relation} {second}"]
