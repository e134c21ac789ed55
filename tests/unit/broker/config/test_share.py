import dataclasses

import pytest

from kohort.broker.config.broker import BrokerConfig, problems


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
    found = problems(dataclasses.replace(BrokerConfig(), **changes))  # type: ignore[arg-type]
    if problem is None:
        assert found == []
    else:
        first, relation, second = problem
        assert found == [f"{first} must be {relation} {second}"]
