"""Settings of a consumer, under Kafka's names in aiokafka's style, validated on creation."""

from __future__ import annotations

import dataclasses
import difflib
import logging
import re
import ssl
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypedDict

from kohort.client.core.errors import ConfigError
from kohort.client.core.fetch.config import IsolationLevel
from kohort.client.core.group.assignors import ASSIGNORS, Assignor
from kohort.client.core.group.assignors.assignor import common_mode
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.offsets import ResetPolicy
from kohort.client.net.address import parse_bootstrap
from kohort.client.net.cluster import ClusterConfig
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.oauth import TokenProvider
from kohort.client.net.security import SecurityConfig, SecuritySettings
from kohort.protocol.join_reason import JoinReason
from kohort.version import VERSION

logger = logging.getLogger(__name__)

Strategy: TypeAlias = str | type[Assignor] | Assignor
"""An assignor: its name, its class, or an instance."""

_INSTANCE_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""The same characters and length as a topic name."""

_SOFTWARE_VERSION: Final = VERSION.replace("+", "-")
"""The version reported to brokers (KIP-511), which helps operators to find outdated clients. Must
begin and end with a letter or digit; dots and hyphens are allowed in between."""

_FIRST_REASONS: Final[Mapping[str, JoinReason]] = {
    "restart": JoinReason.RESTART,
    "upgrade": JoinReason.UPGRADE,
}


class OtherSettings(TypedDict, total=False):
    """The keyword arguments of `Consumer`, except the two deserialisers."""

    bootstrap_servers: str | Iterable[str]
    client_id: str
    group_id: str | None
    group_instance_id: str | None
    group_protocol: str
    group_remote_assignor: str | None
    client_rack: str | None
    auto_offset_reset: str
    isolation_level: str
    enable_auto_commit: bool
    enable_auto_offset_store: bool
    auto_commit_interval_ms: int
    commit_unassigned: bool
    partition_assignment_strategy: Strategy | Sequence[Strategy]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    join_reason: str | JoinReason
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    prefetch_bytes_limit: int
    inflated_bytes_limit: int
    check_crcs: bool
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    missing_topic_timeout_ms: int | None
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    connections_max_idle_ms: int
    security_protocol: str
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_cadata: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: str
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None


class ConsumerSettings(OtherSettings, total=False):
    """The keyword arguments of `Consumer`, all optional; `ConsumerConfig` says what they mean."""

    key_deserializer: Callable[[Any], Any] | None
    value_deserializer: Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(SecuritySettings):
    """All settings of one consumer. Times are in milliseconds, sizes in bytes.

    Raises:
        ConfigError: a setting has an unusable value, or two settings contradict each other.
    """

    bootstrap_servers: str | Iterable[str] = "localhost:9092"
    """Brokers to contact first: `host:port`, several of them as a list or separated by commas."""
    client_id: str = "kohort"
    """Identifies this consumer in metrics, and in the broker's logs and quotas. By
    default the consumers of a process are kohort-1, kohort-2 and so on."""
    group_id: str | None = None
    """The consumer group. None: no group, so no stored positions."""
    group_instance_id: str | None = None
    """An id that survives a restart; it makes this a static member (KIP-345)."""
    group_protocol: str = "classic"
    """classic; consumer: the broker assigns partitions, and members rebalance without waiting for
    each other (KIP-848, Kafka 4.0); auto: consumer if the brokers support it."""
    group_remote_assignor: str | None = None
    """The broker's assignor that this member votes for with group_protocol consumer, uniform or
    range; None: the broker's default."""
    client_rack: str | None = None
    """Where this consumer is, as in the brokers' broker.rack, for reading from followers (KIP-392)
    and for assignors."""

    key_deserializer: Callable[[Any], Any] | None = None
    """Like `value_deserializer`, for keys."""
    value_deserializer: Callable[[Any], Any] | None = None
    """A function that turns bytes, or None, into a value; or a coroutine function, for example one
    that queries a schema registry, called for one record per partition at a time."""

    auto_offset_reset: str = "latest"
    """Where to start without a committed position: earliest, latest, none (raise), or
    by_duration:<ISO 8601>, such as by_duration:PT1H for the last hour (KIP-1106)."""
    isolation_level: str = "read_uncommitted"
    """read_committed skips records of open and aborted transactions (KIP-98)."""
    enable_auto_commit: bool = True
    """Commit the positions of returned records: while polling, before a rebalance and on close."""
    enable_auto_offset_store: bool = True
    """Whether returned records count as processed at the next poll. If not, only those passed to
    `store_offsets` do."""
    auto_commit_interval_ms: int = 5_000
    """The interval between automatic commits."""
    commit_unassigned: bool = False
    """Whether a member may commit positions of partitions that the group has not assigned to it,
    which overwrites the owner's positions."""

    partition_assignment_strategy: Strategy | Sequence[Strategy] = ("range", "cooperative-sticky")
    """Assignors in order of preference. A group rebalances cooperatively if every assignor that its
    members list supports it."""
    session_timeout_ms: int = 45_000
    """How long the broker waits for a heartbeat before it removes a member."""
    heartbeat_interval_ms: int = 3_000
    """The interval between heartbeats."""
    max_poll_interval_ms: int = 300_000
    """The longest time between two polls; also how long the group waits for a member to rejoin in a
    rebalance."""
    max_poll_records: int = 500
    """The largest number of records that one poll returns."""
    join_reason: str | JoinReason = JoinReason.RESTART
    """The reason sent with the first join of this process: restart, or upgrade for a new
    version."""

    fetch_min_bytes: int = 1
    """A fetch waits for this much data, or for fetch_max_wait_ms."""
    fetch_max_wait_ms: int = 500
    """The longest wait for fetch_min_bytes."""
    fetch_max_bytes: int = 50 << 20
    """The largest fetch response."""
    max_partition_fetch_bytes: int = 1 << 20
    """The most data of one partition in a fetch response."""
    prefetch_bytes_limit: int = 50 << 20
    """Bytes fetched ahead of the polls, as received; also the limit for decompressed batches that
    are partly read."""
    inflated_bytes_limit: int = 64 << 20
    """The largest size of one batch after decompression."""
    check_crcs: bool = True
    """Whether the checksums of batches are checked."""

    exclude_internal_topics: bool = True
    """Whether pattern subscriptions skip the broker's internal topics."""
    allow_auto_create_topics: bool = False
    """Whether a metadata request for a missing topic may create it. Java's default is yes."""
    missing_topic_timeout_ms: int | None = 15_000
    """How long a topic subscribed to by name, or an assigned partition, may be missing before polls
    raise UnknownTopicError. None: for ever, as in Java."""

    request_timeout_ms: int = 30_000
    """How long to wait for a single response; for a join, plus the rebalance timeout."""
    default_api_timeout_ms: int = 60_000
    """Total time for all attempts of a call that retries, such as commit, position and
    committed."""
    retry_backoff_ms: int = 100
    """The first wait before a retry; it doubles up to retry_backoff_max_ms."""
    retry_backoff_max_ms: int = 1_000
    """The longest wait before a retry."""
    reconnect_backoff_ms: int = 50
    """The first wait before reconnecting to a broker; it doubles up to reconnect_backoff_max_ms."""
    reconnect_backoff_max_ms: int = 1_000
    """The longest wait before reconnecting."""
    metadata_max_age_ms: int = 300_000
    """The interval between metadata refreshes."""
    connections_max_idle_ms: int = 540_000
    """Connections idle for this long are closed; -1: never."""

    security: SecurityConfig = dataclasses.field(init=False, repr=False, compare=False)
    """The settings of TLS and SASL, and the state that all connections share."""

    def __post_init__(self) -> None:
        self._check_kinds()
        self._check_numbers()
        self._check_group()
        self._check_group_protocol()
        object.__setattr__(self, "security", self._security())
        if self.isolation_level not in _ISOLATION:
            raise ConfigError(
                f"isolation_level must be {' or '.join(_ISOLATION)}, not {self.isolation_level!r}"
            )
        # Computed here for their checks: each raises ConfigError for an unusable setting.
        _ = self.cluster, self.reset_policy, self.assignors(), self.first_reason

    # The settings, grouped for the components that use them.

    @property
    def cluster(self) -> ClusterConfig:
        return ClusterConfig(
            bootstrap=parse_bootstrap(self.bootstrap_servers),
            connection=self.connection,
            reconnect_backoff_ms=self.reconnect_backoff_ms,
            reconnect_backoff_max_ms=self.reconnect_backoff_max_ms,
            creates_topics=self.allow_auto_create_topics,
        )

    @property
    def connection(self) -> ConnectionConfig:
        """Settings that all connections share."""
        return ConnectionConfig(
            client_id=self.client_id,
            software_version=_SOFTWARE_VERSION,
            request_timeout_ms=self.request_timeout_ms,
            max_idle_ms=self.connections_max_idle_ms,
            security=self.security,
        )

    @property
    def isolation(self) -> IsolationLevel:
        return _ISOLATION[self.isolation_level]

    @property
    def reset_policy(self) -> ResetPolicy:
        return ResetPolicy.parse(self.auto_offset_reset)

    @property
    def membership(self) -> MembershipConfig:
        """The settings of a member of the group."""
        assert self.group_id is not None
        return MembershipConfig(
            group_id=self.group_id,
            group_instance_id=self.group_instance_id,
            session_timeout_ms=self.session_timeout_ms,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            max_poll_interval_ms=self.max_poll_interval_ms,
            rack=self.client_rack,
            first_reason=self.first_reason,
            remote_assignor=self.group_remote_assignor,
        )

    @property
    def first_reason(self) -> JoinReason:
        """The reason sent with the first join.

        Raises:
            ConfigError: join_reason is not one that a consumer may send.
        """
        given = self.join_reason
        if isinstance(given, str):
            given = _FIRST_REASONS.get(given.lower(), JoinReason.UNKNOWN)
        if given not in _FIRST_REASONS.values():
            raise ConfigError(f"join_reason must be restart or upgrade, not {self.join_reason!r}")
        return given

    @property
    def commits_by_itself(self) -> bool:
        """Whether auto commit is on and there is a group to commit to."""
        return self.enable_auto_commit and self.group_id is not None

    def assignors(self) -> list[Assignor]:
        """Create the assignors, in order of preference.

        Raises:
            ConfigError: an assignor is unknown or listed twice, or they have no rebalance mode in
                common.
        """
        given = self.partition_assignment_strategy
        listed = [given] if isinstance(given, (str, type, Assignor)) else list(given)
        made = [_assignor(assignor) for assignor in listed]
        names = [assignor.name for assignor in made]
        if len(set(names)) < len(names):
            raise ConfigError(
                f"partition_assignment_strategy lists an assignor twice: {', '.join(names)}"
            )
        common_mode(made)
        return made

    def _security(self) -> SecurityConfig:
        names = (field.name for field in dataclasses.fields(SecuritySettings))
        return SecurityConfig(**{name: getattr(self, name) for name in names})

    # Checks.

    def _check_numbers(self) -> None:
        for name, least in _AT_LEAST.items():
            check_number(name, getattr(self, name), least)
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError("retry_backoff_max_ms must not be less than retry_backoff_ms")
        if self.reconnect_backoff_max_ms < self.reconnect_backoff_ms:
            raise ConfigError("reconnect_backoff_max_ms must not be less than reconnect_backoff_ms")
        missing_ms = self.missing_topic_timeout_ms
        if missing_ms is not None and missing_ms < 0:
            raise ConfigError("missing_topic_timeout_ms must be 0 or more, or None for ever")

    def _check_kinds(self) -> None:
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise ConfigError(f"{name} must be a str, not {value!r}")
        for field in dataclasses.fields(self):
            value = getattr(self, field.name, None)
            if field.type == "bool" and not isinstance(value, bool):
                raise ConfigError(f"{field.name} must be True or False, not {value!r}")
        for name in ("key_deserializer", "value_deserializer"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigError(f"{name} must be a function that takes bytes, not {value!r}")
        if not isinstance(self.bootstrap_servers, Iterable):
            raise ConfigError(
                f"bootstrap_servers must be host:port, or several, not {self.bootstrap_servers!r}"
            )

    def _check_group(self) -> None:
        if self.group_id is not None and not self.group_id.strip():
            raise ConfigError("group_id is empty; name a group, or omit it to use none")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms ({self.heartbeat_interval_ms}) must be less than"
                f" session_timeout_ms ({self.session_timeout_ms}), usually at most a third of it"
            )
        instance_id = self.group_instance_id
        if instance_id is None:
            return
        if self.group_id is None:
            raise ConfigError("group_instance_id needs a group_id")
        if not _INSTANCE_ID.fullmatch(instance_id) or instance_id in {".", ".."}:
            raise ConfigError(
                f"group_instance_id {instance_id!r} must be 1 to 249 letters, digits, dots,"
                " underscores and hyphens"
            )

    def _check_group_protocol(self) -> None:
        if self.group_protocol not in _GROUP_PROTOCOLS:
            raise ConfigError(
                f"group_protocol must be {', '.join(_GROUP_PROTOCOLS)}, not {self.group_protocol!r}"
            )
        if self.group_protocol == "classic":
            if self.group_remote_assignor is not None:
                raise ConfigError("group_remote_assignor needs group_protocol consumer or auto")
            return
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        for name in _SET_BY_BROKER:
            if getattr(self, name) == defaults[name]:
                continue
            if self.group_protocol == "consumer":
                raise ConfigError(
                    f"{name} cannot be set with group_protocol='consumer': the broker decides it"
                )
            logger.warning("%s has no effect if group_protocol='auto' chooses consumer", name)


def config_from(settings: Mapping[str, Any]) -> ConsumerConfig:
    """Create the config from keyword arguments.

    Raises:
        ConfigError: a setting does not exist, or `ConsumerConfig` rejects the settings.
    """
    check_names(settings, ConsumerSettings.__annotations__, "setting")
    return ConsumerConfig(**settings)


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise a ConfigError if a name is unknown; `what` is the noun for it, such as "setting"."""
    for name in given:
        if name not in known:
            hint = _OF_AIOKAFKA.get(name)
            if hint is None and (near := difflib.get_close_matches(name, known, 1)):
                hint = f"did you mean {near[0]}?"
            raise ConfigError(f"unknown {what} {name}" + (f"; {hint}" if hint else ""))


def check_number(name: str, value: object, least: int, or_none: str = "") -> None:
    """Raise a ConfigError for anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(
            f"{name} must be a whole number of {least} or more{or_none}, not {value!r}"
        )


def _assignor(given: object) -> Assignor:
    if isinstance(given, Assignor):
        return given
    if isinstance(given, type) and issubclass(given, Assignor):
        return given()
    if isinstance(given, str) and given in ASSIGNORS:
        return ASSIGNORS[given]()
    raise ConfigError(
        f"partition_assignment_strategy: {given!r} is not an assignor; name one of"
        f" {', '.join(ASSIGNORS)}, or pass a class that derives from Assignor"
    )


_NOT_NEEDED: Final = "it is not needed here; omit it"
_OF_AIOKAFKA: Final[Mapping[str, str]] = {
    "api_version": _NOT_NEEDED,
    "consumer_timeout_ms": _NOT_NEEDED,
    "loop": _NOT_NEEDED,
    "rebalance_timeout_ms": "the rebalance timeout is max_poll_interval_ms",
    "sasl_kerberos_domain_name": "GSSAPI is not supported",
    "sasl_kerberos_service_name": "GSSAPI is not supported",
}
"""Error hints for settings of aiokafka's consumer that Kohort's consumer does not have."""

_ISOLATION: Final[Mapping[str, IsolationLevel]] = {
    "read_uncommitted": IsolationLevel.READ_UNCOMMITTED,
    "read_committed": IsolationLevel.READ_COMMITTED,
}

_GROUP_PROTOCOLS: Final = ("classic", "consumer", "auto")
_SET_BY_BROKER: Final = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "partition_assignment_strategy",
)

_TEXTS: Final = (
    "group_remote_assignor",
    "client_id",
    "group_id",
    "group_instance_id",
    "client_rack",
    "auto_offset_reset",
    "ssl_cadata",
    "ssl_password",
)

_AT_LEAST: Final[Mapping[str, int]] = {
    "auto_commit_interval_ms": 0,
    "session_timeout_ms": 1,
    "heartbeat_interval_ms": 1,
    "max_poll_interval_ms": 1,
    "max_poll_records": 1,
    "fetch_min_bytes": 0,
    "fetch_max_wait_ms": 0,
    "fetch_max_bytes": 1,
    "max_partition_fetch_bytes": 1,
    "prefetch_bytes_limit": 1,
    "inflated_bytes_limit": 1,
    "request_timeout_ms": 1,
    "default_api_timeout_ms": 0,
    "retry_backoff_ms": 0,
    "retry_backoff_max_ms": 0,
    "reconnect_backoff_ms": 0,
    "reconnect_backoff_max_ms": 0,
    "metadata_max_age_ms": 0,
    "connections_max_idle_ms": -1,
}
