"""What to set for a choice of the advisor, as lines to paste: for each client library, and for the
broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from kohort.pipeline.advisor.setting import Setting

INSTANCE: Final = "<a name that stays, one for each process>"
ROLLING: Final = "two rolling restarts: first beside the assignor of now, then alone"

ConfigLines: TypeAlias = Mapping[str, tuple[str, ...]]
"""Lines by whom they are for: `java`, `librdkafka`, `aiokafka`, `kohort`, and `broker`."""


@dataclass(frozen=True, slots=True)
class _Client:
    """How one client library is told."""

    instance: str
    session: str
    heartbeat: str
    rebalance: str
    cooperative: tuple[str, ...]
    eager: tuple[str, ...]
    reasons: tuple[str, ...] = ("# only Kohort's own client states JoinReason",)
    text: str = "{}"
    """How the value of a text is written."""
    end: str = ""


_JAVA: Final = "partition.assignment.strategy=org.apache.kafka.clients.consumer."

_PROPERTIES: Final = _Client(
    instance="group.instance.id",
    session="session.timeout.ms",
    heartbeat="heartbeat.interval.ms",
    rebalance="max.poll.interval.ms",
    cooperative=(f"# {ROLLING}", f"{_JAVA}CooperativeStickyAssignor"),
    eager=(f"{_JAVA}RangeAssignor",),
)
_ARGUMENTS: Final = _Client(
    instance="group_instance_id",
    session="session_timeout_ms",
    heartbeat="heartbeat_interval_ms",
    rebalance="max_poll_interval_ms",
    cooperative=(f"# {ROLLING}", 'partition_assignment_strategy="cooperative-sticky",'),
    eager=('partition_assignment_strategy="range",',),
    reasons=("# this client states JoinReason of itself",),
    text='"{}"',
    end=",",
)

CLIENTS: Final[Mapping[str, _Client]] = {
    "java": _PROPERTIES,
    "librdkafka": replace(
        _PROPERTIES,
        cooperative=(
            "# all members are stopped first: eager and cooperative ones do not mix",
            "partition.assignment.strategy=cooperative-sticky",
        ),
        eager=("partition.assignment.strategy=range,roundrobin",),
    ),
    "aiokafka": replace(
        _ARGUMENTS,
        rebalance="rebalance_timeout_ms",
        cooperative=("# aiokafka has no cooperative assignor: this choice is not for it",),
        eager=("partition_assignment_strategy=[RoundRobinPartitionAssignor],",),
        reasons=_PROPERTIES.reasons,
    ),
    "kohort": _ARGUMENTS,
}


def config_lines(recorded: Setting, one: Setting) -> ConfigLines:
    """What has to be set to come from `recorded` to `one`; nothing for whom nothing changes."""
    found = {name: tuple(_lines(client, recorded, one)) for name, client in CLIENTS.items()}
    if one.initial_rebalance_delay_ms != recorded.initial_rebalance_delay_ms:
        delay_ms = one.initial_rebalance_delay_ms
        found["broker"] = (
            "# for all groups of the broker",
            f"group.initial.rebalance.delay.ms={delay_ms}",
        )
    return {name: lines for name, lines in found.items() if lines}


def _lines(client: _Client, recorded: Setting, one: Setting) -> Iterator[str]:
    if one.static != recorded.static:
        if one.static:
            yield f"{client.instance}={client.text.format(INSTANCE)}{client.end}"
        else:
            yield f"# without {client.instance}"
    if one.cooperative != recorded.cooperative:
        yield from client.cooperative if one.cooperative else client.eager
    for name, before_ms, after_ms in (
        (client.session, recorded.session_timeout_ms, one.session_timeout_ms),
        (client.heartbeat, recorded.heartbeat_interval_ms, one.heartbeat_interval_ms),
        (client.rebalance, recorded.rebalance_timeout_ms, one.rebalance_timeout_ms),
    ):
        if after_ms != before_ms:
            yield f"{name}={after_ms}{client.end}"
    if one.states_reasons and not recorded.states_reasons:
        yield from client.reasons
