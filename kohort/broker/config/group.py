"""Configs of groups (resource type 32, KIP-848): they override the broker's settings of consumer
and share groups for one group, which need not exist yet. A few have no equivalent broker setting.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.settings import InvalidValueError, Setting, Value, settings_of
from kohort.broker.config.share import BOUNDED as BOUNDED_OF_SHARE
from kohort.broker.config.share import ShareGroupConfigs, number_of
from kohort.protocol.errors import ErrorCode, KafkaError

BOUNDED: Final = (
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    *(f"share.{name}" for name in BOUNDED_OF_SHARE),
)
"""Configs that override a broker setting, bounded by the broker's `.min.` and `.max.` settings."""

_OWN: Final = settings_of(ShareGroupConfigs)

GROUP_CONFIGS: Final = tuple(sorted([*BOUNDED, *_OWN]))
"""Names of the configs, in the order in which they are described."""


def broker_name(name: str) -> str | None:
    """Return the name of the broker's setting that a group config overrides, if there is one."""
    return f"group.{name}" if name in BOUNDED else None


@cache
def group_setting(name: str) -> Setting:
    """Return the declaration of a group config; that of one that overrides a broker setting is the
    setting's, without an upper bound.
    """
    overridden = broker_name(name)
    if overridden is None:
        return _OWN[name]
    known = settings_of(BrokerConfig)[overridden]
    return known._replace(name=name, declared=known.declared._replace(at_most=None))


def check_group_configs(configs: Mapping[str, str], config: BrokerConfig) -> None:
    """Check the configs of a group.

    Raises:
        KafkaError: INVALID_CONFIG, a name is unknown or a value is not allowed.
    """
    values: dict[str, Value] = {}
    for name, text in configs.items():
        if name not in GROUP_CONFIGS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        values[name] = _parse(name, text)
        if name not in BOUNDED:
            continue
        low, high = _bounds(name, config)
        if not low <= _whole(values[name]) <= high:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{name} must be in the range {low} to {high} inclusive."
            )
    if values:
        _check_timeouts(values, config)


def _bounds(name: str, config: BrokerConfig) -> tuple[int, int]:
    """Return the minimum and maximum that the broker's settings allow for a group config."""
    kind, _, rest = name.partition(".")
    return (
        number_of(config, f"group.{kind}.min.{rest}"),
        number_of(config, f"group.{kind}.max.{rest}"),
    )


def _check_timeouts(values: Mapping[str, Value], config: BrokerConfig) -> None:
    for session, heartbeat in (
        ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"),
        ("share.session.timeout.ms", "share.heartbeat.interval.ms"),
    ):
        session_ms, heartbeat_ms = (
            _whole(values.get(name, number_of(config, f"group.{name}")))
            for name in (session, heartbeat)
        )
        if session_ms <= heartbeat_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}"
            )


def _parse(name: str, text: str) -> Value:
    try:
        return group_setting(name).parse(text)
    except InvalidValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _whole(value: Value) -> int:
    assert isinstance(value, int), "the configs with bounds are of type INT"
    return value


def clamped(configs: Mapping[str, str], name: str, config: BrokerConfig) -> int | None:
    """Return the value of a stored config within the present bounds; None if it is not set."""
    text = configs.get(name)
    if text is None:
        return None
    low, high = _bounds(name, config)
    return min(max(int(text), low), high)


def group_value(configs: Mapping[str, str], name: str, config: BrokerConfig) -> Value:
    """Return the value in force for a group with these stored configs."""
    known = group_setting(name)
    if name in _OWN:
        return known.parse(configs[name]) if name in configs else known.default
    value: Value = clamped(configs, name, config)
    return getattr(config, known.attribute) if value is None else value
