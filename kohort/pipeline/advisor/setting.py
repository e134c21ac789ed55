"""The settings that are tried, and the grid of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kohort.pipeline.advisor.trace import Trace


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
        """In how many of its parts it is not like `other`."""
        return sum(getattr(self, one.name) != getattr(other, one.name) for one in fields(self))

    def as_dict(self) -> dict[str, Any]:
        """By name, as rows and JSON have it."""
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


SESSIONS: Final = ((6_000, 2_000), (10_000, 3_000), (30_000, 3_000), (45_000, 3_000))
"""Session timeout and heartbeat interval; a longer session needs no rarer heartbeats."""
LONG_SESSIONS: Final = ((90_000, 3_000), (300_000, 10_000))
INITIAL_DELAYS: Final = (0, 3_000, 10_000)
REBALANCE_TIMEOUTS: Final = (60_000, 300_000)


LONG_JOIN_MS: Final = 20_000
"""Only members that may take longer than this meet a shorter rebalance timeout."""


def grid(trace: Trace) -> list[Setting]:
    """What is tried for a group: first what it was recorded under, then all combinations.

    The values that it has now are among those of the grid, so that single steps away from it are.
    What cannot make a difference to this trace is not varied. The initial delay of the broker is no
    part of the grid: see `other_delays`.
    """
    recorded = trace.recorded
    tried = dict.fromkeys([recorded])
    for one in _combinations(trace):
        tried[one] = None
    return list(tried)


def other_delays(one: Setting) -> list[Setting]:
    """The same with other initial delays, which concern all groups of a broker and touch only the
    first rebalance of an empty group: what is left of the difference otherwise is chance.
    """
    return [
        replace(one, initial_rebalance_delay_ms=delay_ms)
        for delay_ms in INITIAL_DELAYS
        if delay_ms != one.initial_rebalance_delay_ms
    ]


def _combinations(trace: Trace) -> Iterator[Setting]:
    recorded = trace.recorded
    own_session = (recorded.session_timeout_ms, recorded.heartbeat_interval_ms)
    sessions = dict.fromkeys((*SESSIONS, *LONG_SESSIONS, own_session))
    longest_ms = max((max(slot.join.took_ms, default=0) for slot in trace.slots), default=0)
    more_timeouts = REBALANCE_TIMEOUTS if longest_ms > LONG_JOIN_MS else ()
    timeouts = dict.fromkeys((*more_timeouts, recorded.rebalance_timeout_ms))
    flags = (False, True)
    memberships = flags if recorded.static is not None else (None, *flags)
    says = any(rejoin.slot is not None for rejoin in trace.rejoins)
    voices = flags if says else (recorded.states_reasons,)
    for static, (
        session_ms,
        beat_ms,
    ), timeout_ms, cooperative, reasons in itertools.product(
        memberships, sessions, timeouts, flags, voices
    ):
        yield Setting(
            static=static,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=beat_ms,
            rebalance_timeout_ms=timeout_ms,
            initial_rebalance_delay_ms=recorded.initial_rebalance_delay_ms,
            cooperative=cooperative,
            states_reasons=reasons,
        )
