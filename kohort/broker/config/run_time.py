"""Which dynamic changes of broker configs are accepted, as in Kafka (KIP-226).

No I/O: takes the current and the new configs, and raises KafkaError. Unlike in Kafka, changes that
could not take effect are rejected: listeners are opened only at the start, and the only data
directory cannot be cordoned. Unknown names, which Kafka stores, are rejected too.
"""

from collections.abc import Mapping
from typing import Final

from kohort.broker.config.broker import effective_ms
from kohort.broker.config.current import (
    SET_FOR_ALL,
    CurrentConfig,
    all_broker_settings,
    known_setting,
)
from kohort.broker.config.ignored import Rule, ignored_settings
from kohort.broker.config.listeners import PER_BROKER, PER_LISTENER, PREFIX, canonical, own_setting
from kohort.broker.config.settings import Value
from kohort.protocol.errors import ErrorCode, KafkaError

_AT_START_ONLY: Final = {
    "listeners": "listeners are opened when the broker starts",
    "listener.security.protocol.map": "listeners are opened when the broker starts",
    "cordoned.log.dirs": "there is one data directory, and new partitions need it",
}
"""Settings that are dynamic in Kafka but not here, with the reason."""

_AT_LEAST_ONE: Final = ("max.connections", "max.connection.creation.rate")
"""Settings whose value 0 is accepted only at the start, because no client could connect to undo
it."""

_ORDERED: Final = tuple(
    (f"{family}.{first}", f"{family}.{second}")
    for family in ("group.consumer", "group.share", "group.streams")
    for first, second in (
        ("min.assignment.interval.ms", "assignment.interval.ms"),
        ("assignment.interval.ms", "max.assignment.interval.ms"),
    )
)
"""Pairs of settings; the first of a pair must not exceed the second."""

_AS_RETENTION: Final = -2
_NO_LIMIT: Final = -1


def check_change(settings: CurrentConfig, broker: str, configs: Mapping[str, str]) -> None:
    """Raise KafkaError unless ``configs`` may replace the dynamic configs of a broker.

    ``broker`` is this broker's id, or empty for the cluster-wide defaults.
    """
    before = settings.set_at_run_time(broker)
    changed = {name: text for name, text in configs.items() if before.get(name) != text}
    _check_names(broker, changed)
    try:
        settings.check(broker, configs)
        _check_values(settings, changed)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    _check_set_for_all(broker, before, configs)


def _check_set_for_all(broker: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    for name in SET_FOR_ALL:
        if broker == "" and name not in after:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} always has a cluster-wide default, which can be changed but not removed.",
            )
        # An earlier release may have stored a value for one broker: it can only stay or be removed.
        if broker != "" and name in after and after[name] != before.get(name):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} cannot be set for one broker, only cluster-wide or for a topic.",
            )


def _check_names(broker: str, changed: Mapping[str, str]) -> None:
    for name in changed:
        if name in _AT_START_ONLY:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is read only when the broker starts: {_AT_START_ONLY[name]}.",
            )
    own_settings = {name: own_setting(name) for name in changed if name.startswith(PREFIX)}
    # Only lower case: a setting stored in several spellings could have several values.
    _refuse(
        [name for name in own_settings if canonical(name) != name],
        "Listeners and mechanisms have to be in lower case in the names of settings",
    )
    _refuse(
        [name for name, own in own_settings.items() if own is None],
        "Unknown listener settings",
    )
    # Kafka would store these changes for its next start, even if they make that start fail.
    _refuse(
        [name for name, own in own_settings.items() if own is not None and not own.is_dynamic],
        "These listener configs are read only when the broker starts: change them in its file of "
        "settings; ssl.keystore.*, ssl.truststore.*, ssl.key.password, max.connections and "
        "max.connection.creation.rate can be updated dynamically",
    )
    _refuse(
        [name for name in changed if not _is_dynamic(name)],
        "Cannot update these configs dynamically",
    )
    _refuse(
        [name for name in changed if name in PER_LISTENER],
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
    )
    if broker == "":
        _refuse(
            [
                name
                for name in changed
                if _rule(name) == Rule.PER_BROKER or name in PER_BROKER or name.startswith(PREFIX)
            ],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def _is_dynamic(name: str) -> bool:
    own = own_setting(name)
    if own is not None:
        return own.is_dynamic
    known = all_broker_settings().get(name)
    return known is not None and known.declared.dynamic


def _rule(name: str) -> str:
    known = ignored_settings().get(name)
    return "" if known is None else known.declared.rule


def _refuse(names: list[str], reason: str) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{reason}: [{', '.join(names)}]")


def _check_values(settings: CurrentConfig, changed: Mapping[str, str]) -> None:
    values = {
        name: known_setting(name).parse(text)
        for name, text in changed.items()
        if not name.startswith(PREFIX)
    }
    for name, text in changed.items():
        own = own_setting(name)
        bare = name if own is None else own.setting.name
        if bare in _AT_LEAST_ONE and known_setting(bare).parse(text) == 0:
            raise ValueError(f"Invalid {name} 0")
    for name, value in values.items():
        if _rule(name) == Rule.THREADS:
            _check_threads(name, _whole(settings.value_of(name)), _whole(value))
    after = {name: settings.value_of(name) for pair in _ORDERED for name in pair} | values
    for first, second in _ORDERED:
        if _whole(after[first]) > _whole(after[second]):
            raise ValueError(f"{first} must be less than or equal to {second}")
    config = settings.config
    for local, retention, limit in (
        ("log.local.retention.ms", "log.retention.ms", effective_ms(config, "log.retention.ms")),
        ("log.local.retention.bytes", "log.retention.bytes", config.log_retention_bytes),
    ):
        if local in values:
            _check_local(local, _whole(values[local]), retention, values.get(retention, limit))


def _check_threads(name: str, now: int, wanted: int) -> None:
    if wanted < now // 2 or wanted < 1:
        raise ValueError(f"{name}={wanted}, value should be at least half the current value {now}")
    if wanted > now * 2:
        raise ValueError(
            f"{name}={wanted}, value should not be greater than double the current value {now}"
        )


def _check_local(name: str, local: int, retention: str, limit: Value) -> None:
    if local == _AS_RETENTION or limit is None or limit == _NO_LIMIT:
        return
    if local == _NO_LIMIT or local > _whole(limit):
        raise ValueError(
            f"Invalid value {local} for configuration {name}: Value must not be more than "
            f"{retention} property value: {limit}"
        )


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value
