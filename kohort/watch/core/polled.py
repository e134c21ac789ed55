"""Follows groups by polls alone, for clusters that hide __consumer_offsets.

Polls show members, assignments and states, but neither generations of classic groups nor timeouts
nor heartbeats. So they show which members joined and left, at most a second late, but not how they
left. No cause is certain, because another one may have occurred between two polls.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.groups.classic.states import ClassicState
from kohort.groups.events import (
    CauseAdded,
    Certainty,
    GroupRemoved,
    JoinPhaseEnd,
    MemberRemoved,
    MemberReplaced,
    RebalanceAvoided,
    RemovalReason,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.moves import NONE_TAKEN, TakenPartitions
from kohort.groups.history.names import REBALANCE
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.records import GroupRecord, StoredMember
from kohort.groups.requests import Now
from kohort.watch.core.changes import Changes
from kohort.watch.core.closing import closed_records, state_fate
from kohort.watch.core.commits import Commit
from kohort.watch.core.fate import Fate, Phase
from kohort.watch.core.followed import Poll, TimedEvent, at, ended, likely, ref, restored, started
from kohort.watch.core.generations import Difference, difference
from kohort.watch.core.logged import Logs, Times
from kohort.watch.core.origin import beginning, causes, first_seen, unknown
from kohort.watch.core.view import PolledView, View

Json: TypeAlias = dict[str, Any]

FORGOTTEN_MS: Final = 3_600_000
"""A group that has not been listed for this time is forgotten."""

_SKEW_MS: Final = 600_000
"""Assumed maximum difference between the clocks of the brokers and of this machine."""

_POLLS_KEPT: Final = 1_000
_BRIEF_KEPT: Final = 100
"""Maximum number of listed members that joined and left during one rebalance."""

_AT_REST: Final = frozenset({ClassicState.STABLE.value, EMPTY})
"""The states of classic and consumer groups without a rebalance in progress."""

_REJOINS: Final = frozenset({TriggerKind.LEADER_REJOINED, TriggerKind.PROTOCOLS_CHANGED})
_EITHER: Final = (TriggerKind.PROTOCOLS_CHANGED, TriggerKind.LEADER_REJOINED)


class Snapshot(NamedTuple):
    at_ms: int
    kind: GroupKind
    state: str
    record: GroupRecord
    """The group's members. Their timeouts are unknown; subscriptions and assignments are empty
    unless the group is Stable. The generation is the epoch of a consumer group, and
    `UNKNOWN_GENERATION` of a classic group."""

    @property
    def is_at_rest(self) -> bool:
        return self.state in _AT_REST


class PolledGroup:
    """Infers one group's history from its snapshots, passed to `take` in order of time."""

    def __init__(self, group: str, changes: Changes, logs: Logs) -> None:
        self._logs = logs
        self._group = group
        self._changes = changes
        self._fold = GroupFold()
        self._taken: TakenPartitions = NONE_TAKEN
        self._rest: Snapshot | None = None
        """The last snapshot without a rebalance in progress."""
        self._polls: list[Poll] = []
        """The first polls after the snapshot `_rest`."""
        self._met: dict[str, StoredMember] = {}
        """Members in snapshots after `_rest`, but not in `_rest`, by member id."""
        self._fates: dict[str, Fate] = {}
        self._between_ms = 0, 0
        self.seen_ms = 0
        """Time of the last snapshot."""
        self._last: Snapshot | None = None
        self._since_ms = 0
        """When the group entered the state of the last snapshot."""

    def take(self, snapshot: Snapshot) -> Iterator[Json]:
        """Process a snapshot; yield the new history records, unless a rebalance is in progress."""
        if self._last is None or snapshot.state != self._last.state:
            self._since_ms = snapshot.at_ms
        if self._last is None or snapshot._replace(at_ms=self._last.at_ms) != self._last:
            self._changes.note(self._group)
        self._last = snapshot
        self.seen_ms = snapshot.at_ms
        self._poll(snapshot)
        if not snapshot.is_at_rest:
            return
        old, self._rest = self._rest, snapshot
        polls, self._polls = self._polls, []
        brief, self._met = self._brief(snapshot), {}
        self._fates = {}
        for event, now in self._events(old, snapshot, polls, brief):
            self._changes.observe(self._group, event, now)
            self._fold.observe(event, now)
            self._fold.settle()
            yield from self._closed(snapshot, now)

    def view(self) -> View | None:
        if self._last is None:
            return None
        _, kind, state, record = self._last
        return PolledView(record, kind, state, self._since_ms)

    def _poll(self, snapshot: Snapshot) -> None:
        members = snapshot.record.members
        ids = frozenset([member.member_id for member in members])
        if len(self._polls) < _POLLS_KEPT:
            if self._polls and self._polls[-1].member_ids == ids:
                ids = self._polls[-1].member_ids
            self._polls.append(Poll(snapshot.at_ms, snapshot.state, ids))
        known = set() if self._rest is None else _ids(self._rest.record)
        for member in members:
            if member.member_id not in known and len(self._met) < len(members) + _BRIEF_KEPT:
                self._met.setdefault(member.member_id, member)

    def _brief(self, snapshot: Snapshot) -> tuple[StoredMember, ...]:
        """Return the members that joined and left during a rebalance that is over in `snapshot`."""
        now = _ids(snapshot.record)
        return tuple([member for key, member in self._met.items() if key not in now])

    def _events(
        self,
        old: Snapshot | None,
        new: Snapshot,
        polls: list[Poll],
        brief: tuple[StoredMember, ...],
    ) -> Iterator[TimedEvent]:
        if old is None:
            yield at(restored(new.record), new.at_ms)
            return
        is_quiet = len(polls) == 1 and not brief and old.kind is new.kind
        if is_quiet and _is_same(old.record, new.record):
            return
        changes = difference(old.record, new.record)
        if is_quiet and _is_static_return(changes):
            yield from _avoided(changes, new.at_ms)
            return
        yield from self._rebalanced(old, new, changes, polls, brief)

    def _rebalanced(
        self,
        old: Snapshot,
        new: Snapshot,
        changes: Difference,
        polls: list[Poll],
        brief: tuple[StoredMember, ...],
    ) -> Iterator[TimedEvent]:
        self._between_ms = old.at_ms, polls[0].at_ms
        phase = Phase(old.at_ms, new.at_ms, (0, 0), seen_ms=first_seen(polls, old.at_ms))
        gone = [
            (member, self._logged(member, _fate(member, polls), old, new))
            for member in changes.gone
        ]
        self._fates = {member.member_id: fate for member, fate in gone}
        came = replace(changes, new=(*changes.new, *brief))
        # The rebalance may have begun up to a poll interval before the first poll that shows it.
        timed = [Poll(old.at_ms, old.state, frozenset(_ids(old.record))), *polls]
        found = causes(old.record, came, gone, new.at_ms, timed)
        order = beginning(found or [unknown(new.at_ms)], phase, timed)
        triggers = [_observed(cause.trigger, changes, old, new) for cause in order]
        triggers[0] = likely(triggers[0])
        at_ms = max(min(order[0].at_ms, polls[0].at_ms), old.at_ms)
        for member, fate in gone:
            yield at(MemberRemoved(ref(member), fate.reason), at_ms)
        yield at(started(old.record, triggers[0], old.record.generation), at_ms)
        for cause, trigger in zip(order[1:], triggers[1:], strict=True):
            yield at(CauseAdded(trigger), max(cause.at_ms, at_ms))
        yield from ended(new.record, JoinPhaseEnd.ALL_JOINED, new.at_ms, new.at_ms)

    def _logged(self, member: StoredMember, fate: Fate, old: Snapshot, new: Snapshot) -> Fate:
        """Return the fate of a member according to the broker's log; `fate` if no line names it.

        The log is not used for consumer groups. Their members may rejoin under the same id, and
        without a common clock it is unknown to which membership a line belongs.
        """
        if old.kind is not GroupKind.CLASSIC:
            return fate
        times = Times(old.at_ms - _SKEW_MS, new.at_ms + _SKEW_MS)
        return self._logs.of(self._group).fate(member.member_id, fate, times)

    # Records of the history.

    def _closed(self, new: Snapshot, now: Now) -> Iterator[Json]:
        records, self._taken = closed_records(self._fold, self._group, self._taken, now.ms)
        for record in records:
            data = _placed(record, now.ms)
            yield self._completed(data, new) if data["kind"] == REBALANCE else data

    def _completed(self, data: Json, new: Snapshot) -> Json:
        """Return the record with null in the fields that polls do not show."""
        if self._logs.of(self._group).is_used:
            data["observed"]["by"].append("log")
        data["group_type"] = new.kind.value
        if new.kind is GroupKind.CLASSIC:
            data["generation"] = None
        data |= dict.fromkeys(
            ("stopped", "unread", "waited_for", "leader_changed", "leader_change")
        )
        data["started_between_ms"] = list(self._between_ms)
        data["timeline"] = dict.fromkeys(data["timeline"])
        data["timeline"] |= {"extensions_ms": [], "stalled_ms": []}
        for member in data["members"]:
            member["role"] = member["stopped_ms"] = None
            fate = self._fates.get(member["member_id"])
            if fate is not None:
                state_fate(member, fate)
        return data


def _placed(data: Json, at_ms: int) -> Json:
    """Mark a record as made from polls, with the time of the poll instead of an offset."""
    data["observed"] = {"by": ["polls"], "partition": -1, "offset": at_ms}
    return data


def _ids(record: GroupRecord) -> set[str]:
    return {member.member_id for member in record.members}


def _is_same(old: GroupRecord, new: GroupRecord) -> bool:
    return old.generation == new.generation and old.members == new.members


def _is_static_return(changes: Difference) -> bool:
    """Whether only the member ids of static members have changed. A short rebalance between two
    polls looks the same if it moved no partitions.
    """
    gone = {member.instance_id: member.assignment for member in changes.gone}
    new = {member.instance_id: member.assignment for member in changes.new}
    same = all(before.assignment == after.assignment for before, after in changes.kept)
    return bool(new) and None not in new and gone == new and same


def _avoided(changes: Difference, at_ms: int) -> Iterator[TimedEvent]:
    before = {member.instance_id: member for member in changes.gone}
    for member in changes.new:
        trigger = Trigger(TriggerKind.STATIC_REPLACED, ref(member), certainty=Certainty.UNCLEAR)
        old_id = before[member.instance_id].member_id
        yield at(MemberReplaced(old_id, ref(member)), at_ms)
        yield at(RebalanceAvoided(trigger), at_ms)


def _fate(member: StoredMember, polls: list[Poll]) -> Fate:
    """Return the possible fates of a member: it left, its session expired, or, if polls showed it
    during a rebalance, it did not rejoin within the rebalance timeout.
    """
    candidates = [RemovalReason.LEFT, RemovalReason.SESSION_EXPIRED]
    if any(poll.state not in _AT_REST and member.member_id in poll.member_ids for poll in polls):
        candidates.append(RemovalReason.REBALANCE_TIMEOUT)
    return Fate(candidates[0], Certainty.UNCLEAR, None, tuple(candidates))


def _observed(trigger: Trigger, changes: Difference, old: Snapshot, new: Snapshot) -> Trigger:
    """Adapt an inferred trigger to the group type. A rejoin in a classic group is unclear, because
    polls do not show whether the leader sent it.
    """
    kinds = old.kind, new.kind
    if kinds == (GroupKind.CLASSIC, GroupKind.CONSUMER):
        return Trigger(TriggerKind.UPGRADED, trigger.member)
    if kinds == (GroupKind.CONSUMER, GroupKind.CLASSIC):
        return Trigger(TriggerKind.DOWNGRADED, trigger.member)
    if trigger.kind not in _REJOINS:
        return trigger
    if new.kind is GroupKind.CLASSIC:
        candidates = trigger.candidates or _EITHER
        return trigger._replace(certainty=Certainty.UNCLEAR, candidates=candidates)
    return _of_consumers(trigger, changes)


def _of_consumers(trigger: Trigger, changes: Difference) -> Trigger:
    """Replace a rejoin by a trigger inferred from the changes, because members of consumer groups
    never rejoin.
    """
    if changes.resubscribed or changes.other_data:
        return Trigger(
            TriggerKind.SUBSCRIPTION_CHANGED,
            trigger.member,
            detail=trigger.detail,
            certainty=Certainty.LIKELY,
        )
    if changes.grown_topics or changes.lost_topics:
        topics = ", ".join((*changes.grown_topics, *changes.lost_topics))
        return Trigger(TriggerKind.TOPICS_CHANGED, detail=topics, certainty=Certainty.LIKELY)
    return Trigger(TriggerKind.UNKNOWN, certainty=Certainty.UNCLEAR)


class PolledGroups:
    """All groups of a cluster; used instead of `Watcher` if __consumer_offsets cannot be read."""

    def __init__(self, groups_max: int) -> None:
        self.logs = Logs()
        """The lines about the groups in the brokers' logs."""
        self.changes = Changes()
        """The groups' changes that no caller has taken yet."""
        self._groups: dict[str, PolledGroup] = {}
        self._groups_max = groups_max

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, snapshot: Snapshot) -> Iterator[Json]:
        """Process a snapshot of a group; yield the same records as `PolledGroup.take`."""
        group_id = snapshot.record.group_id
        group = self._groups.get(group_id)
        if group is None:
            if len(self._groups) >= self._groups_max:
                return
            group = self._groups[group_id] = PolledGroup(group_id, self.changes, self.logs)
        yield from group.take(snapshot)

    def positions(self) -> Sequence[Commit]:
        """Return nothing: polls show no committed offsets."""
        return ()

    def running(self, group_id: str, now_ms: int) -> Json | None:
        """Return None: until a rebalance is over, polls show only that it is in progress."""
        del group_id, now_ms
        return None

    def view(self, group_id: str) -> View | None:
        group = self._groups.get(group_id)
        return None if group is None else group.view()

    def forget(self, listed: Collection[str], now_ms: int) -> None:
        """Forget groups not listed for FORGOTTEN_MS: they were deleted. (A shorter absence may mean
        that the coordinator is moving.)
        """
        for group_id, group in list(self._groups.items()):
            if group_id not in listed and now_ms - group.seen_ms >= FORGOTTEN_MS:
                del self._groups[group_id]
                self.changes.note(group_id)
                self.changes.observe(group_id, GroupRemoved(expired=False), Now(now_ms, now_ms))
