"""The grid of candidate settings for a group."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kohort.insight.advisor.client_software import is_possible
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace

SESSIONS: Final = ((6_000, 2_000), (10_000, 3_000), (30_000, 3_000), (45_000, 3_000))
"""Pairs of session timeout and heartbeat interval; the interval need not grow with the timeout."""
LONG_SESSIONS: Final = ((90_000, 3_000), (300_000, 10_000))
CONSUMER_SESSIONS: Final = ((45_000, 5_000), (45_000, 500))
"""Session timeout and heartbeat interval of consumer groups: Kafka's defaults, and the interval
that Kohort's broker sends to its members while they are few."""
LONG_CONSUMER_SESSIONS: Final = ((60_000, 5_000), (60_000, 500))
"""The default of group.consumer.max.session.timeout.ms, with the same heartbeat intervals."""
ASSIGNMENT_INTERVALS: Final = (1_000, 5_000)
INITIAL_DELAYS: Final = (0, 3_000, 10_000)
REBALANCE_TIMEOUTS: Final = (60_000, 300_000)


LONG_JOIN_MS: Final = 20_000
"""Rebalance timeouts are varied only if a member took longer than this to join, because only slow
members can exceed them."""


def grid(trace: Trace) -> list[Setting]:
    """Return the candidate settings for a group: the recorded one first, then all combinations.

    The recorded values are in the grid, so that some candidates change a single setting. Settings
    that cannot affect this trace are not varied, and settings that a member's client lacks are
    omitted. The broker's initial rebalance delay is not in the grid: see `other_delays`.
    """
    recorded = trace.recorded
    combinations = _of_consumers if recorded.consumer else _combinations
    tried = dict.fromkeys((recorded, *combinations(trace)))
    software = trace.software
    return [setting for setting in tried if is_possible(software, recorded, setting)]


def other_delays(setting: Setting) -> list[Setting]:
    """Return variants of the setting that differ in the initial rebalance delay only.

    This broker-wide delay affects only the first rebalance of an empty group; any other difference
    between the variants' predictions is chance.
    """
    return [
        replace(setting, initial_rebalance_delay_ms=delay_ms)
        for delay_ms in INITIAL_DELAYS
        if delay_ms != setting.initial_rebalance_delay_ms
    ]


def _combinations(trace: Trace) -> Iterator[Setting]:
    recorded = trace.recorded
    own_session = (recorded.session_timeout_ms, recorded.heartbeat_interval_ms)
    sessions = dict.fromkeys((*SESSIONS, *LONG_SESSIONS, own_session))
    longest_ms = max((max(slot.join.took_ms, default=0) for slot in trace.slots), default=0)
    more_timeouts = REBALANCE_TIMEOUTS if longest_ms > LONG_JOIN_MS else ()
    timeouts = dict.fromkeys((*more_timeouts, recorded.rebalance_timeout_ms))
    flags = (False, True)
    memberships = _memberships(recorded)
    has_rejoins = any(rejoin.slot is not None for rejoin in trace.rejoins)
    reason_flags = flags if has_rejoins else (recorded.states_reasons,)
    for static, (
        session_ms,
        heartbeat_ms,
    ), timeout_ms, cooperative, reasons in itertools.product(
        memberships, sessions, timeouts, flags, reason_flags
    ):
        yield Setting(
            static=static,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            rebalance_timeout_ms=timeout_ms,
            initial_rebalance_delay_ms=recorded.initial_rebalance_delay_ms,
            cooperative=cooperative,
            states_reasons=reasons,
        )
    for static, (session_ms, heartbeat_ms) in itertools.product(memberships, CONSUMER_SESSIONS):
        yield replace(
            recorded,
            static=static,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            consumer=True,
        )


def _of_consumers(trace: Trace) -> Iterator[Setting]:
    recorded = trace.recorded
    own_session = (recorded.session_timeout_ms, recorded.heartbeat_interval_ms)
    sessions = dict.fromkeys((*CONSUMER_SESSIONS, *LONG_CONSUMER_SESSIONS, own_session))
    intervals = dict.fromkeys((*ASSIGNMENT_INTERVALS, recorded.assignment_interval_ms))
    for static, (session_ms, heartbeat_ms), interval_ms in itertools.product(
        _memberships(recorded), sessions, intervals
    ):
        yield replace(
            recorded,
            static=static,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=heartbeat_ms,
            assignment_interval_ms=interval_ms,
        )


def _memberships(recorded: Setting) -> tuple[bool | None, ...]:
    return (False, True) if recorded.static is not None else (None, False, True)
