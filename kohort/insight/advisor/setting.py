"""The settings of a group's broker and clients that the advisor varies."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a group's broker and clients. Durations in milliseconds."""

    static: bool | None = None
    """Static membership (KIP-345); None: each process keeps the recorded kind of membership."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    """Like the session timeout, a setting of the clients in a classic group, and of the broker for
    consumer groups."""
    rebalance_timeout_ms: int = 300_000
    """max.poll.interval.ms of the consumers."""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms of the broker (KIP-134)."""
    cooperative: bool = False
    """Whether members keep their partitions during a rebalance, unless revoked (KIP-429)."""
    states_reasons: bool = False
    """Whether clients send a JoinReason, Kohort's tag in JoinGroup, which stock clients do not."""
    consumer: bool = False
    """Whether the group uses the consumer protocol (KIP-848): group.protocol=consumer.
    `cooperative` and `initial_rebalance_delay_ms` then have no effect."""
    assignment_interval_ms: int = 1_000
    """group.consumer.assignment.interval.ms; applies to consumer groups only."""

    def differences(self, other: "Setting") -> int:
        return sum(
            getattr(self, field.name) != getattr(other, field.name) for field in fields(self)
        )

    def as_dict(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


CONSUMER_DEFAULTS: Final = Setting(consumer=True, heartbeat_interval_ms=5_000)
"""Kafka's defaults for consumer groups."""


def known_settings(given: Iterable[str]) -> dict[str, Any]:
    """Parse NAME=VALUE arguments into values by field of `Setting`.

    Raises:
        ValueError: an unknown name, or a value that is not a number of milliseconds.
    """
    durations = {field.name for field in fields(Setting) if field.name.endswith("_ms")}
    known: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        name, value = name.strip().replace(".", "_"), value.strip()
        if name not in durations or not (value.isascii() and value.isdigit()):
            raise ValueError(f"{text!r}: must be one of {', '.join(sorted(durations))}, in ms")
        known[name] = int(value)
    return known
