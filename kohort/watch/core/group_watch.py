"""Follows one group of any kind, and makes the records of its history."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias

from kohort.groups.consumer.records import ConsumerMemberRecord
from kohort.groups.events import GroupRemoved, GroupRestored, MemberRef, RemovalReason
from kohort.groups.history.build import build_steps
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import as_json, fields_of
from kohort.groups.history.moves import NONE_TAKEN, TakenPartitions
from kohort.groups.history.names import AVOIDED
from kohort.groups.records import DurableRecord, GroupRecord, GroupTombstone
from kohort.groups.requests import Now
from kohort.groups.steps import at_once
from kohort.watch.core.changes import Changes
from kohort.watch.core.classic import ClassicGroup
from kohort.watch.core.closing import closed_records, state_fate
from kohort.watch.core.commits import Commit, Signs
from kohort.watch.core.consumer import ConsumerGroup
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place, Poll, Seen, TimedEvent, at, ends_group, ref
from kohort.watch.core.logged import Logs
from kohort.watch.core.share import SHARE_RECORDS, ShareGroup
from kohort.watch.core.topics import TopicNames
from kohort.watch.core.view import View

Json: TypeAlias = dict[str, Any]

_DEPARTURES: Final = frozenset({reason.value for reason in RemovalReason})
"""Values of `fate` for members that are no longer in the group."""

MEMBERS_OF_RUNNING: Final = 100
"""Maximum number of members in the record of a rebalance in progress; this record is rebuilt every
second."""

_NOBODY: Final = Signs(0)
"""Placeholder for the owner's signs of life, in commits of partitions that no member owns."""


class GroupWatch:
    """One group of any kind, whose records must come in the order of their offsets."""

    def __init__(
        self,
        group: str,
        names: TopicNames,
        timeouts_of: Callable[[str], Timeouts],
        changes: Changes,
        logs: Logs,
        sequence: int = 0,
    ) -> None:
        """`sequence` is the last sequence number in the history of this group."""
        self._logs = logs
        self.group_id = group
        self._names = names
        self._timeouts_of = timeouts_of
        self._changes = changes
        self._fold = GroupFold(sequence)
        self._followed: ClassicGroup | ConsumerGroup | ShareGroup | None = None
        self._batch: list[Seen] = []
        """The latest records, with one timestamp: the coordinator wrote them in one operation."""
        self._unread_ms = -1
        """Timestamp of a record that could not be decoded. Other records with this timestamp are
        ignored, because they may be of the same operation."""
        self._epoch = -1
        self._taken: TakenPartitions = NONE_TAKEN
        self._has_polls = False
        self._at_ms = -1
        """Time of the last processed records."""
        self._place: Place | None = None
        """Partition and offset of the last processed record."""
        self._since = "", -1
        """State of a consumer or share group at the last `view`, and when it entered that state."""
        self.commits: dict[bytes, Commit] = {}
        """The group's latest commits, by record key."""
        self._is_linked = False
        """Whether `signs`, the owner's signs of life, may be set in some of `commits`."""

    def take(self, seen: Seen) -> Iterator[Json]:
        """Add a record of the group, other than a commit, to the pending records. If these have
        another timestamp, process them first, and yield the resulting records of the history.
        """
        yield from self._advance(seen.at_ms, seen.place)
        self.unlink()
        if seen.at_ms != self._unread_ms:
            self._batch.append(seen)

    def unread(self, at_ms: int, place: Place) -> Iterator[Json]:
        """Forget the state of the group, because a record could not be decoded: differences between
        the records before and after it may have unknown reasons. Yields records as `take` does.
        """
        yield from self._advance(at_ms, place)
        self.unlink()
        self._batch = []
        self._unread_ms = at_ms
        self._followed = None
        self._changes.note(self.group_id)
        now = Now(at_ms, at_ms)
        self._fold.observe(GroupRestored(0, None, None, {}), now)
        yield from self._closed(place, now)

    def commit(self, commit: Commit, at_ms: int, place: Place) -> Iterator[Json]:
        """Process a commit of the group; yields records as `take` does."""
        yield from self._advance(at_ms, place)
        followed = self._followed
        signs = None if followed is None else followed.signs_of(commit.partition)
        if signs is None:
            # A consumer group finds no owner until the topic's name is known: leave `signs` unset.
            signs = None if isinstance(followed, ConsumerGroup) else _NOBODY
        if signs is not None:
            signs.commit(at_ms, in_transaction=place.in_transaction)
        if not self._batch:
            commit.signs = signs
            self._is_linked = True

    def unlink(self) -> None:
        """Set `signs` of all commits to None, because the partitions' owners or the coordinator
        may have changed: each partition's next commit must be passed to `commit`.
        """
        if self._is_linked:
            self._is_linked = False
            for commit in self.commits.values():
                commit.signs = None

    def _advance(self, at_ms: int, place: Place) -> Iterator[Json]:
        if self._batch and at_ms != self._batch[0].at_ms:
            yield from self.flush()
        if place.leader_epoch > self._epoch:
            if self._epoch >= 0 and self._followed is not None:
                self._followed.restart(place.epoch_ms)
            self._epoch = place.leader_epoch

    def poll(self, poll: Poll) -> None:
        self._has_polls = True
        if isinstance(self._followed, ClassicGroup):
            self._followed.poll(poll)

    def forget_polls(self) -> None:
        if isinstance(self._followed, ClassicGroup):
            self._followed.forget_polls()

    def rest(self, at_ms: int) -> None:
        self._has_polls = True
        if isinstance(self._followed, ClassicGroup):
            self._followed.rest(at_ms)

    @property
    def is_gone(self) -> bool:
        is_empty = self._followed is None and not self.commits and not self.is_pending
        return is_empty and self._unread_ms < 0

    @property
    def is_pending(self) -> bool:
        return bool(self._batch)

    @property
    def sequence(self) -> int:
        """The last sequence number in the group's history."""
        return self._fold.sequence

    @property
    def last_ms(self) -> int:
        """Timestamp of the pending records; 0 if there are none."""
        return self._batch[0].at_ms if self._batch else 0

    def flush(self) -> Iterator[Json]:
        """Process the pending records: no more records with their timestamp will follow."""
        batch, self._batch = self._batch, []
        if not batch:
            return
        self._at_ms, self._place = batch[0].at_ms, batch[-1].place
        self._changes.note(self.group_id)
        for event, now in self._events(batch):
            self._changes.observe(self.group_id, event, now)
            self._fold.observe(event, now)
            self._fold.settle()
            yield from self._closed(batch[-1].place, now)

    def view(self) -> View | None:
        """Return the present state; None if nothing is known of the group, or it was removed."""
        if not isinstance(self._followed, ConsumerGroup | ShareGroup):
            return None if self._followed is None else self._followed.view()
        state, since_ms = self._since
        view = self._followed.view(self.group_id, since_ms)
        if view is None or view.state == state:
            return view
        self._since = view.state, self._at_ms
        return replace(view, since_ms=self._at_ms)

    def running(self, now_ms: int) -> Json | None:
        """Return the record of the rebalance in progress; None if there is none, or the group is
        classic: the rebalances of classic groups are known only when they are over.
        """
        facts, place = self._fold.open, self._place
        if facts is None or place is None:
            return None
        record, _ = at_once(
            build_steps(
                self.group_id,
                facts,
                until_ms=max(now_ms, self._at_ms),
                taken=self._taken,
                members_listed=MEMBERS_OF_RUNNING,
            )
        )
        return self._observed(as_json(record), place)

    def _events(self, batch: list[Seen]) -> Iterator[TimedEvent]:
        records = [seen.record for seen in batch]
        stored = [seen for seen in batch if isinstance(seen.record, GroupRecord)]
        is_removed = any(map(ends_group, records))
        others = [one for one in records if not isinstance(one, GroupRecord | GroupTombstone)]
        at_ms = batch[0].at_ms
        if is_removed and stored:
            self._downgrade(stored[-1])
        elif is_removed and not any(isinstance(one, ConsumerMemberRecord) for one in others):
            self._followed = None
            yield at(GroupRemoved(expired=False), at_ms)
            # A later group of this name begins without state, but continues the sequence numbers.
            self._fold = GroupFold(self._fold.sequence)
            self._taken = NONE_TAKEN
        elif stored:
            for seen in stored:
                yield from self._store(seen)
        elif shares := [one for one in others if isinstance(one, SHARE_RECORDS)]:
            if not isinstance(self._followed, ShareGroup):
                self._followed = ShareGroup(self._names, partial(self._timeouts_of, self.group_id))
            yield from self._followed.store(shares, at_ms, self._logs.of(self.group_id))
        else:
            yield from self._store_batch(others, at_ms)

    def _store(self, seen: Seen) -> Iterator[TimedEvent]:
        assert isinstance(seen.record, GroupRecord)
        if not isinstance(self._followed, ClassicGroup):
            self._followed = ClassicGroup()
        log = self._logs.of(self.group_id)
        yield from self._followed.store(seen, seen.record, log)

    def _store_batch(self, records: list[DurableRecord], at_ms: int) -> Iterator[TimedEvent]:
        followed = self._followed
        if not isinstance(followed, ConsumerGroup):
            self._followed = ConsumerGroup(self._names, partial(self._timeouts_of, self.group_id))
            if isinstance(followed, ClassicGroup) and followed.value is not None:
                members = tuple([ref(member) for member in followed.value.members])
                self._followed.upgrade(members, followed.value.generation)
            followed = self._followed
        yield from followed.store(records, at_ms, self._logs.of(self.group_id))

    def _downgrade(self, seen: Seen) -> None:
        assert isinstance(seen.record, GroupRecord)
        gone: list[MemberRef] = []
        if isinstance(self._followed, ConsumerGroup):
            gone = self._followed.last_consumers(seen.record)
        self._followed = ClassicGroup()
        self._followed.downgrade(seen.record, gone, seen)

    # Records of the history.

    def _closed(self, place: Place, now: Now) -> Iterator[Json]:
        records, self._taken = closed_records(self._fold, self.group_id, self._taken, now.ms)
        for record in records:
            yield self._observed(record, place)
        if records and self._fold.open is None and self._followed is not None:
            self._followed.fates.clear()

    def _observed(self, data: Json, place: Place) -> Json:
        """Add the fields that only a watcher sets; set the fields that it cannot know to null."""
        by = ["records", *([] if isinstance(self._followed, ShareGroup) else ["commits"])]
        by += ["polls"] if self._has_polls else []
        by += ["log"] if self._logs.of(self.group_id).is_used else []
        data["observed"] = {"by": by, "partition": place.partition, "offset": place.offset}
        followed = self._followed
        if followed is None or data["kind"] == AVOIDED:
            return data
        for member in data["members"]:
            fate = followed.fates.get(member["member_id"])
            if fate is not None and member["fate"] in _DEPARTURES:
                state_fate(member, fate)
        if isinstance(followed, ClassicGroup):
            _complete(data, followed)
        return data


def _complete(data: Json, followed: ClassicGroup) -> None:
    data["stopped"] = data["unread"] = None
    data["waited_for"] = None if followed.waited is None else fields_of(followed.waited)
    data["started_between_ms"] = None
    if followed.began_between_ms is not None:
        data["started_between_ms"] = list(followed.began_between_ms)
        # These times count from the start of the rebalance, which is unknown.
        data["timeline"] |= dict.fromkeys(("join_phase_ms", "durable_ms", "finished_ms"))
    for member in data["members"]:
        member["stopped_ms"] = None
        settings = followed.settings.get(member["member_id"])
        if settings is not None:
            member.update(settings._asdict())
