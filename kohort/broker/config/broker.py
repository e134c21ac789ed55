"""All settings of the broker in one frozen object, and checks of combinations of settings."""

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from kohort.broker.config.groups import GroupSettings
from kohort.broker.config.kohort_settings import KohortSettings
from kohort.broker.config.network import (
    Endpoint,
    NetworkSettings,
    parse_endpoints,
    parse_protocol_map,
)
from kohort.broker.config.security import (
    AccessSettings,
    QuotaSettings,
    SecuritySettings,
    super_users_problem,
    super_users_warnings,
)
from kohort.broker.config.settings import Int, Settings, String, setting, settings_of, unit_ms
from kohort.broker.config.share import ShareSettings, share_problems
from kohort.broker.config.storage import (
    CleanerSettings,
    LogSettings,
    ProducerSettings,
    TopicSettings,
    TransactionSettings,
)


class IdentitySettings(Settings):
    """Identity."""

    node_id: Int = setting(1, at_least=0, doc="Id of this broker, as clients see it.")
    broker_id: Int = setting(
        -1, doc="Older name of `node.id`; if both are set they must be equal. -1 means unset."
    )
    broker_rack: String | None = setting(
        None, doc="Rack of this broker, which clients get in Metadata."
    )


class BrokerConfig(
    KohortSettings,
    TransactionSettings,
    ProducerSettings,
    ShareSettings,
    GroupSettings,
    CleanerSettings,
    LogSettings,
    TopicSettings,
    SecuritySettings,
    AccessSettings,
    QuotaSettings,
    NetworkSettings,
    IdentitySettings,
):
    """All settings of the broker; docs/configuration.md describes them."""

    @cached_property
    def listener_endpoints(self) -> tuple[Endpoint, ...]:
        """Addresses to listen at, in the given order."""
        return self._without_controllers(self.listeners)

    @cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """The advertised addresses, by listener name.

        By default those of ``listeners``. The host may be a wildcard and the port 0; both are
        replaced when the socket is open.
        """
        advertised = self._without_controllers(self.advertised_listeners or ())
        return advertised or self.listener_endpoints

    def _without_controllers(self, listeners: Iterable[str]) -> tuple[Endpoint, ...]:
        controllers = {name.upper() for name in self.controller_listener_names}
        endpoints = parse_endpoints(listeners)
        return tuple(endpoint for endpoint in endpoints if endpoint.listener not in controllers)

    def protocol_of(self, listener: str) -> str:
        """Return the security protocol of a listener, by its name in upper case."""
        return parse_protocol_map(self.listener_security_protocol_map)[listener]

    @property
    def data_directory(self) -> Path:
        """Directory of logs and metadata."""
        return Path(self.named_directories[0])

    @property
    def named_directories(self) -> tuple[str, ...]:
        """The directories of ``log.dirs``, or of ``log.dir``; only the first is used."""
        return self.log_dir if self.log_dirs is None else self.log_dirs


def effective_ms(config: BrokerConfig, name: str) -> int | None:
    """Return a setting, or its first fallback that is set, in milliseconds; None if none is set."""
    known = settings_of(BrokerConfig)
    wanted: str | None = name
    while wanted is not None:
        declared = known[wanted]
        value = getattr(config, declared.attribute)
        if value is not None:
            if value >= 0:
                return int(value) * unit_ms(wanted)
            # -1 means no limit in every unit; for retention, Kafka accepts any negative number.
            return -1 if name == "log.retention.ms" else int(value)
        wanted = declared.declared.falls_back_to
    return None


def problems(config: BrokerConfig) -> list[str]:
    """Return the errors in combinations of settings."""
    errors = []
    if config.broker_id not in {-1, config.node_id}:
        errors.append(
            f"broker.id={config.broker_id} and node.id={config.node_id} must be equal if both "
            "are set"
        )
    if not config.named_directories:
        # An empty value is an error: it would be unclear that records are in the default directory.
        setting = "log.dir" if config.log_dirs is None else "log.dirs"
        errors.append(f"{setting} must name a directory")
    unusable = super_users_problem(config.super_users) if config.authorizer_class_name else None
    if unusable is not None:
        errors.append(unusable)
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = getattr(config, name.replace(".", "_"))
        if value == 0:
            errors.append(f"{name}=0 must be at least 1, or negative for no limit")
    lag = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    if lag[0] > lag[1]:
        errors.append(
            f"log.cleaner.min.compaction.lag.ms={lag[0]} must not exceed "
            f"log.cleaner.max.compaction.lag.ms={lag[1]}"
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        errors.append("max.connections.per.ip=0 needs max.connections.per.ip.overrides")
    return errors + share_problems(config) + _listener_problems(config)


def warnings_about(config: BrokerConfig) -> list[str]:
    """Return probable mistakes that do not prevent a start, because Kafka accepts them."""
    warnings = list(super_users_warnings(config.super_users))
    if len(config.named_directories) > 1:
        warnings.append(
            f"several data directories are not supported: of {','.join(config.named_directories)} "
            "only the first is used"
        )
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        warnings.append(
            f"group.min.session.timeout.ms={config.group_min_session_timeout_ms} exceeds "
            f"group.max.session.timeout.ms={config.group_max_session_timeout_ms}: no member can "
            "join a group"
        )
    return warnings


def _listener_problems(config: BrokerConfig) -> list[str]:
    errors = []
    protocols = parse_protocol_map(config.listener_security_protocol_map)
    names = {endpoint.listener for endpoint in config.listener_endpoints}
    if not names:
        errors.append("listeners must name at least one listener")
    errors.extend(
        f"listener {name} of listeners has no entry in listener.security.protocol.map"
        for name in sorted(names)
        if name not in protocols
    )
    errors.extend(
        f"advertised.listeners has {endpoint}, but listeners has no listener {endpoint.listener}"
        for endpoint in config.advertised_endpoints
        if endpoint.listener not in names
    )
    return errors
