"""What a group is set to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Setting:
    """What broker and clients of a group are set to. Durations in milliseconds."""

    static: bool | None = None
    """Static membership (KIP-345). None: each process as it was recorded."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    rebalance_timeout_ms: int = 300_000
    """max.poll.interval.ms of the consumers."""
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms of the broker (KIP-134)."""
    cooperative: bool = False
    """Members keep what they need not give up (KIP-429)."""
    states_reasons: bool = False
    """Clients say why they join (JoinReason), instead of stock ones."""

    def differences(self, other: Setting) -> int:
        """The number of parts in which this setting differs from `other`."""
        return sum(getattr(self, one.name) != getattr(other, one.name) for one in fields(self))

    def as_dict(self) -> dict[str, Any]:
        """The parts by name, as in rows and JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def known_settings(given: Iterable[str]) -> dict[str, Any]:
    """What NAME=VALUE says of the setting of the time, by field of `Setting`.

    Raises:
        ValueError: the name is not that of a duration, or the value no number of milliseconds.
    """
    durations = {one.name for one in fields(Setting) if one.name.endswith("_ms")}
    known: dict[str, Any] = {}
    for text in given:
        name, _, value = text.partition("=")
        name, value = name.strip().replace(".", "_"), value.strip()
        if name not in durations or not (value.isascii() and value.isdigit()):
            raise ValueError(f"{text!r}: one of {', '.join(sorted(durations))}, in ms")
        known[name] = int(value)
    return known
