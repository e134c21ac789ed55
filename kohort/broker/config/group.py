"""Configs of groups (resource type 32, KIP-848): they override the broker's settings of consumer
groups for one group, which need not exist yet.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.settings import InvalidValueError, Setting, settings_of
from kohort.protocol.errors import ErrorCode, KafkaError

GROUP_CONFIGS: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
)
"""Names of the configs, in the order in which they are described."""


def broker_name(name: str) -> str:
    """Return the name of the broker's setting that a group config overrides."""
    return f"group.{name}"


@cache
def group_setting(name: str) -> Setting:
    """Return the declaration of the broker setting that a group config overrides."""
    return settings_of(BrokerConfig)[broker_name(name)]._replace(name=name)


def bounds(name: str, config: BrokerConfig) -> tuple[int, int]:
    """Return the smallest and the largest value that the broker's settings allow."""
    match name:
        case "consumer.assignment.interval.ms":
            return (
                config.group_consumer_min_assignment_interval_ms,
                config.group_consumer_max_assignment_interval_ms,
            )
        case "consumer.heartbeat.interval.ms":
            return (
                config.group_consumer_min_heartbeat_interval_ms,
                config.group_consumer_max_heartbeat_interval_ms,
            )
    return (
        config.group_consumer_min_session_timeout_ms,
        config.group_consumer_max_session_timeout_ms,
    )


def check_group_configs(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Check the configs of a group.

    Raises:
        KafkaError: INVALID_CONFIG, a name is unknown or a value is not allowed.
    """
    values: dict[str, int] = {}
    for name, text in configs.items():
        if name not in GROUP_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        values[name] = _parse(name, text)
        low, high = bounds(name, config)
        if not low <= values[name] <= high:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} must be in the range {low} to {high} inclusive."
            )
    session_ms = values.get("consumer.session.timeout.ms", config.group_consumer_session_timeout_ms)
    heartbeat_ms = values.get(
        "consumer.heartbeat.interval.ms", config.group_consumer_heartbeat_interval_ms
    )
    if values and session_ms <= heartbeat_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "consumer.session.timeout.ms must be greater than consumer.heartbeat.interval.ms",
        )


def _parse(name: str, text: str) -> int:
    try:
        value = group_setting(name).parse(text)
    except InvalidValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    assert isinstance(value, int), "all group configs are of type INT"
    return value


def clamped(configs: Mapping[str, str], name: str, config: BrokerConfig) -> int | None:
    """Return the value of a stored config within the present bounds; None if it is not set."""
    text = configs.get(name)
    if text is None:
        return None
    low, high = bounds(name, config)
    return min(max(int(text), low), high)
