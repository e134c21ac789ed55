"""Which changes of broker settings are taken while the broker runs, as Kafka decides it (KIP-226).

Pure: what is set now and what is to be set go in; an answer for the peer comes out as KafkaError.
Differs from Kafka in what cannot be kept here: listeners are opened at the start only, the one data
directory cannot be cordoned, and names that are no setting are refused where Kafka stores them.
"""

from collections.abc import Mapping
from typing import Final

from kohort.broker.config.broker import effective_ms
from kohort.broker.config.current import BROKER_SETTINGS, SET_FOR_ALL, CurrentConfig, known_setting
from kohort.broker.config.listeners import PER_BROKER, PER_LISTENER, PREFIX, canonical, own_setting
from kohort.broker.config.settings import Value
from kohort.broker.config.unused import Rule, unused_settings
from kohort.protocol.errors import ErrorCode, KafkaError

_AT_START_ONLY: Final = {
    "listeners": "listeners are opened when the broker starts",
    "listener.security.protocol.map": "listeners are opened when the broker starts",
    "cordoned.log.dirs": "there is one data directory, and new partitions need it",
}
"""Changed by Kafka at run time, and why not here."""

_AT_LEAST_ONE: Final = ("max.connections", "max.connection.creation.rate")
"""Zero is taken at the start only: it would lock out who could set it back."""

_ORDERED: Final = tuple(
    (f"{family}.{first}", f"{family}.{second}")
    for family in ("group.consumer", "group.share", "group.streams")
    for first, second in (
        ("min.assignment.interval.ms", "assignment.interval.ms"),
        ("assignment.interval.ms", "max.assignment.interval.ms"),
    )
)
"""The first must not exceed the second."""

_AS_RETENTION: Final = -2
_NO_LIMIT: Final = -1


def check_change(settings: CurrentConfig, broker: str, configs: Mapping[str, str]) -> None:
    """Raise KafkaError unless ``configs`` may be what is set from now on.

    ``broker`` is this broker's id, or empty for all brokers.
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
                f"{name} is always set for all brokers: it can be changed, not removed.",
            )
        # What an earlier release stored for one broker may be taken away.
        if broker != "" and name in after and after[name] != before.get(name):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{name} cannot be set for one broker, only for all or for a topic.",
            )


def _check_names(broker: str, changed: Mapping[str, str]) -> None:
    for name in changed:
        if name in _AT_START_ONLY:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{name} is taken at the start of the broker only: {_AT_START_ONLY[name]}.",
            )
    unused = unused_settings()
    of_listeners = {name: own_setting(name) for name in changed if name.startswith(PREFIX)}
    # Two spellings would be two values of one setting.
    _refuse(
        [name for name in of_listeners if canonical(name) != name],
        "Names of listeners and of mechanisms are written in lower case in such settings",
    )
    _refuse(
        [name for name, own in of_listeners.items() if own is None],
        "Listeners have no such settings",
    )
    # Kafka stores them and applies them at its next start, also those that would fail then.
    _refuse(
        [name for name, own in of_listeners.items() if own is not None and not own.is_dynamic],
        "These configs of a listener are taken at the start of the broker only: change them in its "
        "file of settings; ssl.keystore.*, ssl.truststore.*, ssl.key.password, max.connections and "
        "max.connection.creation.rate can be updated dynamically",
    )
    _refuse(
        [name for name in changed if not _is_dynamic(name)],
        "Cannot update these configs dynamically",
    )
    rules = {name: unused[name].rule for name in changed if name in unused}
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
                if rules.get(name) is Rule.PER_BROKER
                or name in PER_BROKER
                or name.startswith(PREFIX)
            ],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )


def _is_dynamic(name: str) -> bool:
    own = own_setting(name)
    if own is not None:
        return own.is_dynamic
    if name in BROKER_SETTINGS:
        return BROKER_SETTINGS[name].declared.dynamic
    unused = unused_settings().get(name)
    return unused is not None and unused.setting.declared.dynamic


def _refuse(names: list[str], why: str) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(names)}]")


def _check_values(settings: CurrentConfig, changed: Mapping[str, str]) -> None:
    """Raise ValueError for a value that does not go with what counts now."""
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
    unused = unused_settings()
    for name, value in values.items():
        if name in unused and unused[name].rule is Rule.THREADS:
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
