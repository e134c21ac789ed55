"""All settings of the broker in one frozen object, and what follows from several of them."""

from functools import cached_property
from pathlib import Path

from kohort.broker.config.access import AccessSettings, QuotaSettings
from kohort.broker.config.endpoints import (
    Endpoint,
    parse_endpoints,
    parse_protocol_map,
)
from kohort.broker.config.groups import GroupSettings
from kohort.broker.config.kohort_settings import KohortSettings
from kohort.broker.config.network import NetworkSettings
from kohort.broker.config.security import SecuritySettings
from kohort.broker.config.settings import Int, Settings, String, setting, settings_of, unit_ms
from kohort.broker.config.storage import (
    CleanerSettings,
    LogSettings,
    ProducerSettings,
    TopicSettings,
)
from kohort.broker.config.transactions import TransactionSettings


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
    """Every setting of the broker; see docs/configuration.md for what each means."""

    @cached_property
    def listener_endpoints(self) -> tuple[Endpoint, ...]:
        """Where to accept connections, in the order given."""
        controllers = {name.upper() for name in self.controller_listener_names}
        endpoints = parse_endpoints(self.listeners)
        return tuple(one for one in endpoints if one.listener not in controllers)

    @cached_property
    def advertised_endpoints(self) -> tuple[Endpoint, ...]:
        """What clients are told, by listener name.

        Where ``advertised.listeners`` is not set these are the listeners themselves: their host
        may be every interface and their port 0, to be filled in when the socket is opened.
        """
        if self.advertised_listeners is None:
            return self.listener_endpoints
        return parse_endpoints(self.advertised_listeners)

    def protocol_of(self, listener: str) -> str:
        """Security protocol of one of the listeners, by its name in upper case."""
        return parse_protocol_map(self.listener_security_protocol_map)[listener]

    @property
    def data_directory(self) -> Path:
        """Where logs and metadata are kept."""
        return Path((self.log_dir if self.log_dirs is None else self.log_dirs)[0])


def effective_ms(config: BrokerConfig, name: str) -> int | None:
    """Milliseconds of a setting or of the first that it falls back to; None where none is set."""
    known = settings_of(BrokerConfig)
    wanted: str | None = name
    while wanted is not None:
        declared = known[wanted]
        value = getattr(config, declared.attribute)
        if value is not None:
            # Minus one is "no limit" in every unit.
            return int(value) if value < 0 else int(value) * unit_ms(wanted)
        wanted = declared.declared.falls_back_to
    return None


def problems(config: BrokerConfig) -> list[str]:
    """What is wrong with settings taken together, each naming the settings; empty if nothing is."""
    found = []
    if config.broker_id not in {-1, config.node_id}:
        found.append(
            f"broker.id={config.broker_id} and node.id={config.node_id} must be equal where both "
            "are set"
        )
    named = config.log_dir if config.log_dirs is None else config.log_dirs
    if len(named) != 1:
        # Nothing given is no directory, not the default: records would end up in an odd place.
        setting = "log.dir" if config.log_dirs is None else "log.dirs"
        found.append(f"{setting}={','.join(named)} must name exactly one directory")
    if config.group_min_session_timeout_ms > config.group_max_session_timeout_ms:
        found.append(
            f"group.min.session.timeout.ms={config.group_min_session_timeout_ms} must not exceed "
            f"group.max.session.timeout.ms={config.group_max_session_timeout_ms}"
        )
    for name in ("log.retention.ms", "log.retention.minutes", "log.retention.hours"):
        value = getattr(config, name.replace(".", "_"))
        if value is not None and value != -1 and value < 1:
            found.append(f"{name}={value} must be -1 (for ever) or at least 1")
    lag = config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms
    if lag[0] > lag[1]:
        found.append(
            f"log.cleaner.min.compaction.lag.ms={lag[0]} must not exceed "
            f"log.cleaner.max.compaction.lag.ms={lag[1]}"
        )
    if config.max_connections_per_ip == 0 and not config.max_connections_per_ip_overrides:
        found.append(
            "max.connections.per.ip=0 can be set only where max.connections.per.ip.overrides is"
        )
    return found + _listener_problems(config)


def _listener_problems(config: BrokerConfig) -> list[str]:
    found = []
    protocols = parse_protocol_map(config.listener_security_protocol_map)
    names = {endpoint.listener for endpoint in config.listener_endpoints}
    if not names:
        found.append("listeners must name at least one listener")
    found.extend(
        f"listener {name} of listeners has no entry in listener.security.protocol.map"
        for name in sorted(names)
        if name not in protocols
    )
    found.extend(
        f"advertised.listeners has {endpoint}, but listeners has no listener {endpoint.listener}"
        for endpoint in config.advertised_endpoints
        if endpoint.listener not in names
    )
    return found
