"""The settings that are tried for a group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Trace

SESSIONS: Final = ((6_000, 2_000), (10_000, 3_000), (30_000, 3_000), (45_000, 3_000))
"""Session timeout and heartbeat interval; a longer session needs no rarer heartbeats."""
LONG_SESSIONS: Final = ((90_000, 3_000), (300_000, 10_000))
INITIAL_DELAYS: Final = (0, 3_000, 10_000)
REBALANCE_TIMEOUTS: Final = (60_000, 300_000)


LONG_JOIN_MS: Final = 20_000
"""The join time above which shorter rebalance timeouts are tried: only a slower member would meet
them."""


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
