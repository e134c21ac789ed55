"""Formats a recommended setting as configuration lines for each client library and the broker."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kohort.insight.advisor.client_software import AIOKAFKA, JAVA, KOHORT, LIBRDKAFKA
from kohort.insight.advisor.setting import CONSUMER_DEFAULTS, Setting

INSTANCE: Final = "<a stable name, unique to each process>"
PRESENT: Final = "<the current assignor>"
"""Placeholder for an assignor that is missing from the history, or unknown to the client library.
"""
FIRST: Final = "# 1. First rolling restart:"
SECOND: Final = "# 2. Second rolling restart, instead:"
STOPPED: Final = "# all members are stopped first: eager and cooperative ones do not mix"
COOPERATIVE: Final = "cooperative-sticky"

ConfigLines: TypeAlias = Mapping[str, tuple[str, ...]]
"""Lines by target: `java`, `librdkafka`, `aiokafka`, `kohort`, and `broker`."""


@dataclass(frozen=True, slots=True)
class _Client:
    instance: str
    session: str
    heartbeat: str
    rebalance: str
    eager: tuple[str, ...]
    cooperative: tuple[str, ...] = ()
    """Lines that switch to a cooperative assignor, for libraries that cannot do so by two rolling
    restarts."""
    both: str = ""
    """The assignors for the first of two rolling restarts; members stay eager until the second
    restart."""
    alone: str = ""
    assignors: Mapping[str, str] = field(default_factory=dict)
    """How the client's configuration names the assignors, by protocol name."""
    reasons: tuple[str, ...] = ("# only Kohort's own client states JoinReason",)
    consumer: str = "group.protocol=consumer"
    """The line that switches to the consumer protocol."""
    text: str = "{}"
    end: str = ""


_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_STRATEGY: Final = "partition.assignment.strategy="
_CLASSES: Final = {
    "range": f"{_PACKAGE}RangeAssignor",
    "roundrobin": f"{_PACKAGE}RoundRobinAssignor",
    "sticky": f"{_PACKAGE}StickyAssignor",
}

_PROPERTIES: Final = _Client(
    instance="group.instance.id",
    session="session.timeout.ms",
    heartbeat="heartbeat.interval.ms",
    rebalance="max.poll.interval.ms",
    eager=(f"{_STRATEGY}{_CLASSES['range']}",),
    both=f"{_STRATEGY}{{}},{_PACKAGE}CooperativeStickyAssignor",
    alone=f"{_STRATEGY}{_PACKAGE}CooperativeStickyAssignor",
    assignors=_CLASSES,
)
_ARGUMENTS: Final = _Client(
    instance="group_instance_id",
    session="session_timeout_ms",
    heartbeat="heartbeat_interval_ms",
    rebalance="max_poll_interval_ms",
    eager=('partition_assignment_strategy="range",',),
    both=f'partition_assignment_strategy=["{{}}", "{COOPERATIVE}"],',
    alone=f'partition_assignment_strategy="{COOPERATIVE}",',
    assignors={name: name for name in _CLASSES},
    reasons=("# this client states JoinReason by default",),
    consumer='group_protocol="consumer",',
    text='"{}"',
    end=",",
)

CLIENTS: Final[Mapping[str, _Client]] = {
    JAVA: _PROPERTIES,
    LIBRDKAFKA: replace(
        _PROPERTIES,
        cooperative=(
            STOPPED,
            f"{_STRATEGY}{COOPERATIVE}",
        ),
        eager=(f"{_STRATEGY}range,roundrobin",),
    ),
    AIOKAFKA: replace(
        _ARGUMENTS,
        rebalance="rebalance_timeout_ms",
        cooperative=("# not possible: aiokafka has no cooperative assignor",),
        eager=("partition_assignment_strategy=[RoundRobinPartitionAssignor],",),
        reasons=_PROPERTIES.reasons,
        consumer="# not possible: aiokafka has no consumer protocol",
    ),
    KOHORT: _ARGUMENTS,
}


def config_lines(
    recorded: Setting,
    setting: Setting,
    assignor: str | None = None,
    libraries: Sequence[str] = (),
) -> ConfigLines:
    """Return the lines that change `recorded` to `setting`, for the targets that need a change.

    Args:
        assignor: protocol name of the current assignor; None if it is unknown.
        libraries: the libraries of the group's clients, whose lines come first.
    """
    names = [name for name in libraries if name in CLIENTS]
    lines_by_target = {
        name: tuple(_lines(CLIENTS[name], recorded, setting, assignor))
        for name in dict.fromkeys((*names, *CLIENTS))
    }
    if setting.initial_rebalance_delay_ms != recorded.initial_rebalance_delay_ms:
        delay_ms = setting.initial_rebalance_delay_ms
        lines_by_target["broker"] = (
            "# for all groups of the broker",
            f"group.initial.rebalance.delay.ms={delay_ms}",
        )
    if setting.consumer:
        lines_by_target["broker"] = tuple(_of_broker(recorded, setting))
    return {name: lines for name, lines in lines_by_target.items() if lines}


def _of_broker(recorded: Setting, setting: Setting) -> Iterator[str]:
    """Yield the broker's consumer group settings that differ from those in force."""
    before = recorded if recorded.consumer else CONSUMER_DEFAULTS
    for name in ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms"):
        value = getattr(setting, name)
        if value != getattr(before, name):
            if name == "heartbeat_interval_ms" and value < CONSUMER_DEFAULTS.heartbeat_interval_ms:
                yield "# for Apache Kafka; a Kohort broker with few members does so by itself"
                yield f"group.consumer.min.heartbeat.interval.ms={value}"
            yield f"group.consumer.{name.replace('_', '.')}={value}"


def _lines(
    client: _Client, recorded: Setting, setting: Setting, assignor: str | None
) -> Iterator[str]:
    becomes_cooperative = setting.cooperative and not recorded.cooperative
    restarts_twice = becomes_cooperative and not client.cooperative
    if restarts_twice:
        yield FIRST
    if setting.static != recorded.static:
        if setting.static:
            yield f"{client.instance}={client.text.format(INSTANCE)}{client.end}"
        else:
            yield f"# without {client.instance}"
    if becomes_cooperative:
        yield from client.cooperative
    elif setting.cooperative != recorded.cooperative:
        yield STOPPED
        yield from client.eager
    becomes_consumer = setting.consumer and not recorded.consumer
    if becomes_consumer:
        yield client.consumer
        if not client.consumer.startswith("#"):
            yield f"# without {client.session}, {client.heartbeat} and assignor: the broker decides"
    for name, before_ms, after_ms in (
        (client.session, recorded.session_timeout_ms, setting.session_timeout_ms),
        (client.heartbeat, recorded.heartbeat_interval_ms, setting.heartbeat_interval_ms),
        (client.rebalance, recorded.rebalance_timeout_ms, setting.rebalance_timeout_ms),
    ):
        is_of_broker = setting.consumer and name != client.rebalance
        if after_ms != before_ms and not is_of_broker:
            yield f"{name}={after_ms}{client.end}"
    if setting.states_reasons and not recorded.states_reasons:
        yield from client.reasons
    if restarts_twice:
        yield client.both.format(client.assignors.get(assignor or "", PRESENT))
        yield SECOND
        # Commented out: if all lines were pasted at once, the last one would win, and members that
        # are cooperative only would be rejected while others are eager only.
        yield f"# {client.alone}"
