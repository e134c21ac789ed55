"""Groups member lifetimes into slots: the successive processes of one restarted consumer.

A static member's slot is its instance id. A dynamic member returns under a new member id: its slot
is its client id if no two processes had that client id at the same time, otherwise client id and
host.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from kohort.insight.advisor.client_software import UNKNOWN
from kohort.insight.advisor.member_lifetimes import MemberLifetime
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Delays, End, Pause, Run, Slot

LOST: Final = "MEMBERSHIP_LOST"
ORDERLY: Final = frozenset({"left", "replaced", "refused"})
EXPIRED: Final = frozenset(
    {
        "rebalance_timeout",
        "sync_expired",
        "new_member_expired",
        "join_expired",
        "rebalance_expired",
    }
)
"""Fates of processes that the group removed because they were too slow; such a process rejoins."""
_TIMER_MS: Final = 20
"""Maximum delay of the broker's session timers."""
WARM_UP_MS: Final = 900_000
"""In a replay, members that joined before the start of the history begin this long before it."""


_Place: TypeAlias = list[MemberLifetime]
"""The successive member lifetimes of one slot, that is of one consumer across restarts."""


@dataclass(slots=True)
class MemberSlots:
    """A group's slots (consumers across restarts), and counts of cases its history leaves open."""

    slots: list[Slot] = field(default_factory=list)
    of_member: dict[str, int] = field(default_factory=dict)
    """Slot indexes by member id."""
    silences: int = 0
    """Number of rejoins after expired sessions; whether by a paused or a new process is unknown."""
    quick_returns: int = 0
    """Number of restarts of static members after an absence of unknown duration."""
    uncertain_ends: int = 0
    """Number of ended static members: whether they crashed or were shut down is unknown."""
    nameless: int = 0
    """Number of members without a known host that share their client id with others."""
    strangers: int = 0
    """Number of slots that begin soon after another slot has ended (see `SOON_MS`)."""


def find_member_slots(
    lifetimes: Iterable[MemberLifetime], recorded: Setting, begin_ms: int
) -> MemberSlots:
    """Return the slots, in the order of their first member."""
    ordered = sorted(lifetimes, key=lambda lifetime: lifetime.start_ms or 0)
    member_slots = MemberSlots()
    places = _places(ordered, recorded, member_slots)
    names: dict[str, int] = defaultdict(int)
    for place in places:
        member_slots.of_member |= {
            lifetime.member_id: len(member_slots.slots) for lifetime in place
        }
        member_slots.slots.append(_slot(place, recorded, begin_ms, names, member_slots))
    member_slots.strangers = _strangers(places)
    return member_slots


def heard_ms(lifetime: MemberLifetime, recorded: Setting) -> int | None:
    """Return the time of the member's last sign of life; None if it is alive."""
    if lifetime.end_ms is None:
        return None
    if lifetime.fate != "session_expired":
        return lifetime.end_ms
    session_ms = lifetime.session_timeout_ms or lifetime.session_ms or recorded.session_timeout_ms
    renewed_ms = lifetime.end_ms - session_ms
    # A response from the broker renews the session too, but is no sign of life from the client.
    for asked_ms, answered_ms in lifetime.parked:
        if abs(answered_ms - renewed_ms) <= _TIMER_MS and asked_ms < renewed_ms:
            return asked_ms
    # If the session timeout is only assumed, `renewed_ms` may be before the member's first join.
    return max(renewed_ms, (lifetime.start_ms or renewed_ms - 1) + 1)


def _places(
    ordered: list[MemberLifetime], recorded: Setting, member_slots: MemberSlots
) -> list[_Place]:
    places: list[_Place] = []
    by_key: dict[tuple[str, ...], list[_Place]] = defaultdict(list)
    alone = _clients_alone(ordered, recorded)
    for lifetime in ordered:
        if lifetime.instance_id is not None:
            key: tuple[str, ...] = ("static", lifetime.instance_id)
        elif lifetime.client_id in alone:
            key = (lifetime.client_id,)
        elif lifetime.host:
            key = (lifetime.client_id, lifetime.host)
        else:
            # The client id is shared and a log has no hosts, so members cannot be matched.
            key = ("", lifetime.member_id)
            member_slots.nameless += 1
        is_static = lifetime.instance_id is not None
        same = by_key[key]
        place = same[0] if is_static and same else _free(same, lifetime, recorded)
        if place is None:
            place = []
            places.append(place)
            by_key[key].append(place)
        place.append(lifetime)
    return places


def _free(places: list[_Place], lifetime: MemberLifetime, recorded: Setting) -> _Place | None:
    """Return the slot whose process had ended when `lifetime` began; if there are several, the one
    that ended first.
    """
    if lifetime.start_ms is None:
        return None
    free = []
    for place in places:
        heard = heard_ms(place[-1], recorded)
        if heard is not None and heard <= lifetime.start_ms:
            free.append((heard, place))
    return min(free, key=lambda entry: entry[0])[1] if free else None


def _clients_alone(ordered: list[MemberLifetime], recorded: Setting) -> set[str]:
    """Return the client ids that never belonged to two processes at the same time."""
    until: dict[str, float] = {}
    shared = set()
    for lifetime in ordered:
        start_ms = lifetime.start_ms or 0
        heard = heard_ms(lifetime, recorded)
        if until.get(lifetime.client_id, -1.0) > start_ms:
            shared.add(lifetime.client_id)
        end = float("inf") if heard is None else heard
        until[lifetime.client_id] = max(until.get(lifetime.client_id, -1.0), end)
    return {client_id for client_id in until if client_id and client_id not in shared}


def _slot(
    place: _Place,
    recorded: Setting,
    begin_ms: int,
    names: dict[str, int],
    member_slots: MemberSlots,
) -> Slot:
    def delays(name: str) -> Delays:
        return Delays.from_samples([took for life in place for took in getattr(life, name)])

    first = place[0]
    runs: list[Run] = []
    pauses: list[Pause] = []
    join = [sample for lifetime in place for sample in lifetime.join]
    for index, lifetime in enumerate(place):
        before = place[index - 1] if index else None
        start_ms = begin_ms - WARM_UP_MS if lifetime.start_ms is None else lifetime.start_ms
        run = _run(lifetime, recorded, member_slots)
        if before is not None and runs and _is_same_process(before, lifetime):
            previous = runs.pop()
            if before.fate == "session_expired" and previous.end_ms is not None:
                pauses.append(Pause(previous.end_ms, start_ms, previous.margin_ms))
            elif before.notified_ms is not None:
                join.append((before.notified_ms, start_ms - before.notified_ms))
            runs.append(replace(run, start_ms=previous.start_ms))
            continue
        if before is not None and runs:
            runs[-1] = _cut_run(runs[-1], start_ms)
            member_slots.silences += before.fate == "session_expired" and lifetime.reason is None
        runs.append(replace(run, start_ms=start_ms))
    name = first.instance_id or _name(first, names)
    return Slot(
        name=name,
        client_id=first.client_id,
        host=first.host,
        instance_id=first.instance_id,
        software=next(
            (life.software for life in reversed(place) if life.software.library), UNKNOWN
        ),
        runs=tuple(runs),
        pauses=tuple(pauses),
        join=Delays.from_samples(join),
        again=delays("again"),
        assign=delays("assign"),
        sync=delays("sync"),
        revoke=delays("revoke"),
    )


def _is_same_process(before: MemberLifetime, lifetime: MemberLifetime) -> bool:
    """Whether both lifetimes are of one process, which lost its membership and rejoined."""
    if before.fate == "session_expired":
        return lifetime.reason == LOST or lifetime.member_id == before.member_id
    return before.fate in EXPIRED


def _run(lifetime: MemberLifetime, recorded: Setting, member_slots: MemberSlots) -> Run:
    if lifetime.end_ms is None:
        return Run(0)
    if lifetime.fate == "removed_by_admin":
        return Run(0, lifetime.end_ms, End.REMOVED)
    if lifetime.fate in ORDERLY or lifetime.fate == "fenced":
        if lifetime.fate in {"replaced", "fenced"}:
            return _run_until_return(lifetime, recorded, member_slots)
        return Run(0, lifetime.end_ms, End.LEFT)
    heard = heard_ms(lifetime, recorded)
    assert heard is not None
    member_slots.uncertain_ends += lifetime.instance_id is not None
    # A process whose session expired ended within an interval of its last heartbeat.
    margin_ms = recorded.heartbeat_interval_ms // 2 if lifetime.fate == "session_expired" else 0
    return Run(0, heard + margin_ms, End.SILENT, margin_ms)


def _run_until_return(
    lifetime: MemberLifetime, recorded: Setting, member_slots: MemberSlots
) -> Run:
    """Return the run of a process that another one with its instance id has replaced."""
    assert lifetime.end_ms is not None
    if lifetime.silent_ms is None:
        member_slots.quick_returns += 1
        return Run(0, lifetime.end_ms, End.LEFT)
    # The process ended within an interval of its last heartbeat: assume the middle.
    margin_ms = min(recorded.heartbeat_interval_ms, lifetime.silent_ms) // 2
    return Run(0, lifetime.end_ms - lifetime.silent_ms + margin_ms, End.LEFT, margin_ms)


def _cut_run(run: Run, start_ms: int) -> Run:
    """Limit a process's run to the time before the slot's next process starts."""
    if run.end_ms is None or run.end_ms > start_ms:
        return replace(run, end_ms=start_ms, end=run.end or End.SILENT)
    return run


def _name(lifetime: MemberLifetime, names: dict[str, int]) -> str:
    base = lifetime.client_id or lifetime.member_id
    names[base] += 1
    return base if names[base] == 1 else f"{base}~{names[base]}"


def _strangers(places: list[_Place]) -> int:
    """Count the slots that begin up to `SOON_MS` after another slot has ended, as in a deployment
    that changes the ids.
    """
    ends = sorted(place[-1].end_ms for place in places if place[-1].end_ms is not None)
    starts = sorted(
        lifetime.start_ms for place in places if (lifetime := place[0]).start_ms is not None
    )
    count = 0
    for start_ms in starts:
        if ends and ends[0] <= start_ms:
            while ends and ends[0] < start_ms - SOON_MS:
                ends.pop(0)
            if ends and ends[0] <= start_ms:
                ends.pop(0)
                count += 1
    return count


SOON_MS: Final = 300_000
"""A slot that begins within this time after another has ended may be its successor."""
