"""Follows all groups of a cluster, and makes the records of their history."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.groups.encoding import decode
from kohort.groups.records import OffsetRecord, OffsetTombstone
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.record import Record
from kohort.watch.core.changes import Changes
from kohort.watch.core.commits import TYPE_BYTES, Commit, KnownCommits, Limits, Reached
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place, Poll, Seen, ends_group
from kohort.watch.core.group_watch import GroupWatch
from kohort.watch.core.logged import Logs
from kohort.watch.core.topics import TopicNames
from kohort.watch.core.view import View

Json: TypeAlias = dict[str, Any]

COMMITS_MAX: Final = 1_000_000
"""Maximum number of partitions whose commit keys are kept, to save decoding them again."""

_OFFSET_TYPE_MAX: Final = 1

GROUPS_MAX: Final = 100_000
"""Groups beyond this number are not followed."""


class _LeaderEpoch(NamedTuple):
    number: int
    began_ms: int
    """Time of the first record with this leader epoch."""


def _is_of_group(key: bytes) -> bool:
    """Whether a key belongs to a group record other than an offset commit."""
    return int.from_bytes(key[:TYPE_BYTES], "big") > _OFFSET_TYPE_MAX


def key_prefix(group: str) -> bytes:
    """Return the bytes that follow the record type in all keys of a group."""
    encoded = group.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(TYPE_BYTES, "big") + encoded


def _group_of(key: bytes) -> str:
    """Return the group id in a key: it follows the record type in keys of all types."""
    begin = 2 * TYPE_BYTES
    length = int.from_bytes(key[TYPE_BYTES:begin], "big")
    return key[begin : begin + length].decode(errors="replace")


class Watcher:
    """Follows all groups. The records of each are in one partition of __consumer_offsets."""

    def __init__(
        self,
        names: Mapping[bytes, str],
        timeouts_of: Callable[[str], Timeouts],
        left_out: Container[str] = (),
    ) -> None:
        """`names` are topic names by id; `timeouts_of` returns the timeouts of a group."""
        self._left_out = left_out
        self._names = TopicNames(names)
        self._timeouts_of = timeouts_of
        self._groups: dict[str, GroupWatch] = {}
        self._sequences: dict[str, int] = {}
        """The last sequence number in the history of each removed group."""
        self._leaving: dict[str, None] = {}
        """Groups with a tombstone, which may no longer exist."""
        self._commits = KnownCommits()
        self._epochs: dict[int, _LeaderEpoch] = {}
        """The leader epoch of each partition of __consumer_offsets."""
        self.logs = Logs()
        """The lines about the groups in the brokers' logs."""
        self.changes = Changes()
        """The groups that changed since `Changes.take` was last called, and their events."""
        self._busy: set[str] = set()
        """The groups that were rebalancing at the last poll of the coordinators."""
        self.unread_count = 0
        """Number of records that could not be decoded."""
        self.since_ms: dict[str, int] = {}
        """Time of each group's first record other than a commit, by group."""

    def positions(self) -> Sequence[Commit]:
        """Return the last commit of each group and partition; for any thread."""
        return self._commits.all()

    def skip_commits(
        self, batches: bytes, at: Reached, partition: int, end_offset: int, prefix: bytes | None
    ) -> Reached:
        """Process commits that complete no history record; see `KnownCommits.skip`."""
        epoch = self._epochs.get(partition)
        if epoch is None:
            return at
        return self._commits.skip(batches, at, Limits(epoch.number, end_offset, prefix))

    def take(
        self, records: Iterable[Record], place: Place, prefix: bytes | None = None
    ) -> Iterator[Json]:
        """Process the records of a batch; yield the history records that are complete now.

        Args:
            place: the batch's; each record's offset is filled in.
            prefix: process only records whose keys have these bytes after the record type.
        """
        epoch = self._epochs.get(place.partition)
        if epoch is None or place.leader_epoch != epoch.number:
            records = list(records)
            began_ms = records[0].timestamp if records else -1
            epoch = _LeaderEpoch(place.leader_epoch, began_ms)
            self._epochs[place.partition] = epoch
            for group in self._groups.values():
                group.unlink()
        place = place._replace(epoch_ms=epoch.began_ms)
        for record in records:
            key, value = record.key, record.value
            if key is None or not (prefix is None or key.startswith(prefix, TYPE_BYTES)):
                continue
            commit = self._commits.get(key)
            if commit is None or value is None or not value.endswith(commit.topic_id):
                yield from self._take(key, record, place._replace(offset=record.offset))
            else:
                commit.value = value
                if commit is not self._commits.not_followed:
                    group = self._groups[commit.group_id]
                    yield from group.commit(commit, record.timestamp, place)

    def _take(self, key: bytes, stored: Record, place: Place) -> Iterator[Json]:
        at_ms = stored.timestamp
        try:
            record = decode(key, stored.value, stored.headers)
        except DecodeError:
            self.unread_count += 1
            group = self._groups.get(_group_of(key)) if _is_of_group(key) else None
            if group is not None:
                yield from group.unread(at_ms, place)
            return
        if record is None:
            return
        if isinstance(record, OffsetTombstone) or ends_group(record):
            self._leaving[record.group_id] = None
        if isinstance(record, OffsetTombstone):
            self._forget(record.group_id, key)
            return
        if record.group_id in self._left_out:
            if isinstance(record, OffsetRecord) and len(self._commits) < COMMITS_MAX:
                self._commits.add(key, self._commits.not_followed)
            return
        group = self._group(record.group_id)
        if group is None:
            return
        if not isinstance(record, OffsetRecord):
            self.since_ms.setdefault(record.group_id, at_ms)
            yield from group.take(Seen(record, at_ms, place))
            return
        yield from group.commit(self._commit(group, record, key, stored.value), at_ms, place)

    def _commit(
        self, group: GroupWatch, record: OffsetRecord, key: bytes, value: bytes | None
    ) -> Commit:
        topic_id = record.committed.topic_id
        topic_id = self._names.learn(topic_id, record.topic) if any(topic_id) else b""
        # Share the name: there are many commits of few topics.
        partition = intern(record.topic), record.partition
        commit = Commit(group.group_id, partition, topic_id, value or b"")
        if key in group.commits or len(self._commits) < COMMITS_MAX:
            self._commits.add(key, commit)
            group.commits[key] = commit
        return commit

    def _forget(self, group_id: str, key: bytes) -> None:
        self._commits.remove(key)
        group = self._groups.get(group_id)
        if group is not None:
            group.commits.pop(key, None)

    def _group(self, group_id: str) -> GroupWatch | None:
        group = self._groups.get(group_id)
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                self._evict()
            if len(self._groups) < GROUPS_MAX:
                sequence = self._sequences.pop(group_id, 0)
                group = GroupWatch(
                    group_id, self._names, self._timeouts_of, self.changes, self.logs, sequence
                )
                self._groups[group_id] = group
        return group

    def _evict(self) -> list[str]:
        """Drop the groups that have neither state nor commits any more; return their ids."""
        gone = []
        for group_id in list(self._leaving):
            group = self._groups.get(group_id)
            if group is None or not group.is_pending:
                del self._leaving[group_id]
            if group is not None and group.is_gone:
                del self._groups[group_id]
                gone.append(group_id)
                if group.sequence:
                    self._sequences[group_id] = group.sequence
        while len(self._sequences) > GROUPS_MAX:
            del self._sequences[next(iter(self._sequences))]
        return gone

    def poll(self, group_id: str, poll: Poll) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.poll(poll)
            self._busy.add(group_id)
            self.changes.note(group_id)

    def rest(self, at_ms: int, busy: Container[str]) -> None:
        """Record that a poll found no group rebalancing except those in `busy`."""
        for group_id in [group_id for group_id in self._busy if group_id not in busy]:
            self._busy.discard(group_id)
            self.changes.note(group_id)
        for group_id, group in self._groups.items():
            if group_id not in busy:
                group.rest(at_ms)

    def forget_polls(self) -> None:
        """Drop earlier polls' results: a poll has failed, so coordinators may have restarted."""
        for group in self._groups.values():
            group.forget_polls()

    def view(self, group_id: str) -> View | None:
        """Return the present state of a group; None if it is unknown or was removed."""
        group = self._groups.get(group_id)
        return None if group is None else group.view()

    @property
    def is_pending(self) -> bool:
        return any(group.is_pending for group in self._groups.values())

    def running(self, group_id: str, now_ms: int) -> Json | None:
        """Return the record of a group's rebalance in progress at `now_ms`, by the coordinators'
        clock; None without a rebalance.
        """
        group = self._groups.get(group_id)
        return None if group is None else group.running(now_ms)

    def flush(self, before_ms: int | None = None) -> Iterator[Json]:
        """Process the pending records of all groups, or only those from before `before_ms`; yield
        the history records that they complete.
        """
        for group in self._groups.values():
            if before_ms is None or group.last_ms < before_ms:
                yield from group.flush()
        if before_ms is not None:
            for group_id in self._evict():
                self.since_ms.pop(group_id, None)
