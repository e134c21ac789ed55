"""Which member took whose place: a process that was started again is the same slot of its group.

A static member is its instance id. A dynamic one comes back under a new member id: the client id
tells if only one process at a time has had it, else client id and host together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from kohort.insight.advisor.lives import Life
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Delays, End, Pause, Run, Slot

LOST: Final = "MEMBERSHIP_LOST"
ORDERLY: Final = frozenset({"left", "replaced", "refused"})
_TIMER_MS: Final = 20
"""Timers may be this late."""
WARM_UP_MS: Final = 900_000
"""Members that were there before the history began are started this long before it."""


@dataclass(slots=True)
class _Place:
    """A slot in the making."""

    lives: list[Life] = field(default_factory=list)

    @property
    def last(self) -> Life:
        return self.lives[-1]


@dataclass(slots=True)
class FoundSlots:
    """The slots, and what was noticed on the way."""

    slots: list[Slot] = field(default_factory=list)
    of_member: dict[str, int] = field(default_factory=dict)
    """Member id to the place of its slot."""
    silences: int = 0
    """Silences that ended with the same client id, where a pause cannot be told from a restart."""
    quick_returns: int = 0
    """Quick returns of static members of which it is not recorded how long they were away."""
    uncertain_ends: int = 0
    """Static members that went: nothing says whether in good order."""
    nameless: int = 0
    """Members with a client id that others have too, and no host."""
    strangers: int = 0
    """Newcomers while a member had just gone, with nothing that connects the two."""


def find_slots(lives: Iterable[Life], recorded: Setting, begin_ms: int) -> FoundSlots:
    """Slots in the order of their first member."""
    ordered = sorted(lives, key=lambda life: life.start_ms or 0)
    found = FoundSlots()
    places = _places(ordered, recorded, found)
    names: dict[str, int] = defaultdict(int)
    for place in places:
        found.of_member |= {life.member_id: len(found.slots) for life in place.lives}
        found.slots.append(_slot(place, recorded, begin_ms, names, found))
    found.strangers = _strangers(places)
    return found


def heard_ms(life: Life, recorded: Setting) -> int | None:
    """When it was last heard of, None while it lives."""
    if life.end_ms is None:
        return None
    if life.fate != "session_expired":
        return life.end_ms
    session_ms = life.session_timeout_ms or life.session_ms or recorded.session_timeout_ms
    renewed_ms = life.end_ms - session_ms
    # An answer of the broker's renews a session too, but it is no sign of life.
    for asked_ms, answered_ms in life.parked:
        if abs(answered_ms - renewed_ms) <= _TIMER_MS and asked_ms < renewed_ms:
            return asked_ms
    # With a session that is a guess, it might have ended before it began.
    return max(renewed_ms, (life.start_ms or renewed_ms - 1) + 1)


def _places(ordered: list[Life], recorded: Setting, found: FoundSlots) -> list[_Place]:
    places: list[_Place] = []
    by_key: dict[tuple[str, ...], list[_Place]] = defaultdict(list)
    alone = _clients_alone(ordered, recorded)
    for life in ordered:
        if life.instance_id is not None:
            key: tuple[str, ...] = ("static", life.instance_id)
        elif life.client_id in alone:
            key = (life.client_id,)
        elif life.host:
            key = (life.client_id, life.host)
        else:
            # Several share the client id, and a log has no hosts: nothing tells them apart.
            key = ("", life.member_id)
            found.nameless += 1
        is_static = life.instance_id is not None
        same = by_key[key]
        place = same[0] if is_static and same else _free(same, life, recorded)
        if place is None:
            place = _Place()
            places.append(place)
            by_key[key].append(place)
        place.lives.append(life)
    return places


def _free(places: list[_Place], life: Life, recorded: Setting) -> _Place | None:
    """The place whose process had gone when `life` began; of several, the oldest such."""
    if life.start_ms is None:
        return None
    free = []
    for place in places:
        heard = heard_ms(place.last, recorded)
        if heard is not None and heard <= life.start_ms:
            free.append((heard, place))
    return min(free, key=lambda one: one[0])[1] if free else None


def _clients_alone(ordered: list[Life], recorded: Setting) -> set[str]:
    """Client ids that never belonged to two processes at a time."""
    until: dict[str, float] = {}
    shared = set()
    for life in ordered:
        start_ms = life.start_ms or 0
        heard = heard_ms(life, recorded)
        if until.get(life.client_id, -1.0) > start_ms:
            shared.add(life.client_id)
        end = float("inf") if heard is None else heard
        until[life.client_id] = max(until.get(life.client_id, -1.0), end)
    return {client_id for client_id in until if client_id and client_id not in shared}


def _slot(
    place: _Place, recorded: Setting, begin_ms: int, names: dict[str, int], found: FoundSlots
) -> Slot:
    first = place.lives[0]
    runs: list[Run] = []
    pauses: list[Pause] = []
    join = [sample for life in place.lives for sample in life.join]
    for index, life in enumerate(place.lives):
        before = place.lives[index - 1] if index else None
        start_ms = begin_ms - WARM_UP_MS if life.start_ms is None else life.start_ms
        run = _ended(life, recorded, found)
        if before is not None and runs and _goes_on(before, life):
            previous = runs.pop()
            if before.fate == "session_expired" and previous.end_ms is not None:
                pauses.append(Pause(previous.end_ms, start_ms, previous.margin_ms))
            elif before.told_ms is not None:
                join.append((before.told_ms, start_ms - before.told_ms))
            runs.append(replace(run, start_ms=previous.start_ms))
            continue
        if before is not None and runs:
            runs[-1] = _before(runs[-1], start_ms)
            found.silences += before.fate == "session_expired" and life.reason is None
        runs.append(replace(run, start_ms=start_ms))
    name = first.instance_id or _name(first, names)
    return Slot(
        name=name,
        client_id=first.client_id,
        host=first.host,
        instance_id=first.instance_id,
        runs=tuple(runs),
        pauses=tuple(pauses),
        join=Delays.of(join),
        again=Delays.of([sample for life in place.lives for sample in life.again]),
        assign=Delays.of([sample for life in place.lives for sample in life.assign]),
        sync=Delays.of([sample for life in place.lives for sample in life.sync]),
        revoke=Delays.of([sample for life in place.lives for sample in life.revoke]),
    )


def _goes_on(before: Life, life: Life) -> bool:
    """Whether it is the same process, whose session had expired."""
    if before.fate == "session_expired":
        return life.reason == LOST
    return before.fate in {"rebalance_timeout", "sync_expired", "new_member_expired"}


def _ended(life: Life, recorded: Setting, found: FoundSlots) -> Run:
    if life.end_ms is None:
        return Run(0)
    if life.fate == "removed_by_admin":
        return Run(0, life.end_ms, End.REMOVED)
    if life.fate in ORDERLY or life.fate == "fenced":
        if life.fate in {"replaced", "fenced"}:
            return _away(life, recorded, found)
        return Run(0, life.end_ms, End.LEFT)
    heard = heard_ms(life, recorded)
    assert heard is not None
    found.uncertain_ends += life.instance_id is not None
    # Somewhere between its last heartbeat and the next one that did not come.
    margin_ms = recorded.heartbeat_interval_ms // 2 if life.fate == "session_expired" else 0
    return Run(0, heard + margin_ms, End.SILENT, margin_ms)


def _away(life: Life, recorded: Setting, found: FoundSlots) -> Run:
    """The run of a static member until it went, before its instance id came back."""
    assert life.end_ms is not None
    if life.silent_ms is None:
        found.quick_returns += 1
        return Run(0, life.end_ms, End.LEFT)
    # Somewhere between its last heartbeat and the next one that did not come.
    margin_ms = min(recorded.heartbeat_interval_ms, life.silent_ms) // 2
    return Run(0, life.end_ms - life.silent_ms + margin_ms, End.LEFT, margin_ms)


def _before(run: Run, start_ms: int) -> Run:
    """A process has ended when the next one begins in its place."""
    if run.end_ms is None or run.end_ms > start_ms:
        return replace(run, end_ms=start_ms, end=run.end or End.SILENT)
    return run


def _name(life: Life, names: dict[str, int]) -> str:
    base = life.client_id or life.member_id
    names[base] += 1
    return base if names[base] == 1 else f"{base}~{names[base]}"


def _strangers(places: list[_Place]) -> int:
    """Count the places that began soon after others had ended for good, as in a deploy under new
    names.
    """
    ends = sorted(place.last.end_ms for place in places if place.last.end_ms is not None)
    starts = sorted(life.start_ms for p in places if (life := p.lives[0]).start_ms is not None)
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
"""A newcomer within this time may be the successor of a member that went."""
