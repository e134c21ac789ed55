"""Commits of known partitions, which are nearly all records of __consumer_offsets.

Commits serve only as signs of life, so they are not decoded: the bytes of a record's key lead to
the signs of life of the partition's owner.

A commit of a classic member restarts its session, in Stable and PreparingRebalance, as a heartbeat
does; a commit in a transaction does not. So a member that has committed within its session timeout,
outside a transaction, cannot have expired.
"""

import struct
from collections import deque
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from struct import Struct
from typing import Final, NamedTuple

from kohort.groups.history.shares import TopicPartition
from kohort.groups.requests import CommittedOffset
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_MIN,
    LENGTH_OVERHEAD_BYTES,
    MAGIC,
)
from kohort.protocol.records.crc import crc32c
from kohort.protocol.records.varint import read_uvarint

_TOGETHER_MS: Final = 50
"""Records whose timestamps differ by at most this much belong to one commit."""

_KEPT: Final = 10
"""Number of commits from which the usual interval is computed."""

_REGULAR: Final = 3
"""Minimum number of intervals from which the usual interval is computed."""

_TOLERANCE_MS: Final = 300

_EARLY_MS: Final = 1_000
"""A commit is early only if it comes more than this before it is due: if a loaded client sends a
commit late, the next one seems early."""


class Signs:
    """Signs of life of one member: its last commits, the end of its last join phase, and others."""

    __slots__ = (
        "_times",
        "commit_ms",
        "count",
        "in_transaction",
        "last_ms",
        "restarted_ms",
        "since_ms",
    )

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        """When the last join phase ended; at that time, all members were alive."""
        self.last_ms = since_ms
        """Time of the member's last sign of life."""
        self.restarted_ms = since_ms
        """Time of the latest coordinator's first record; each coordinator restarts all sessions."""
        self.count = 0
        self.commit_ms = -1
        """Time of the generation's last commit; -1 if there is none, or it was transactional."""
        self.in_transaction = False
        """Whether the last commit was transactional, so that it did not restart the session."""
        self._times: deque[int] = deque(maxlen=_KEPT)

    def renew(self, since_ms: int) -> None:
        """Begin a new generation at `since_ms`; keep the times of the last commits."""
        self.since_ms = self.last_ms = since_ms
        self.count = 0
        self.commit_ms = -1

    def prove(self, at_ms: int) -> None:
        """Record that the member was alive at `at_ms`, without a commit."""
        self.last_ms = max(self.last_ms, at_ms)

    def commit(self, at_ms: int, *, in_transaction: bool = False) -> None:
        self.in_transaction = in_transaction
        self.commit_ms = -1 if in_transaction else at_ms
        self.count += 1
        times = self._times
        if not times or at_ms > times[-1] + _TOGETHER_MS:
            times.append(at_ms)
        self.last_ms = max(self.last_ms, at_ms)

    @property
    def has_committed(self) -> bool:
        """Whether the member has committed, in this generation or an earlier one."""
        return bool(self._times)

    @property
    def usual_ms(self) -> int | None:
        """The usual interval between commits; None if they are rare or irregular."""
        intervals = [after - before for before, after in pairwise(self._times)]
        if len(intervals) < _REGULAR:
            return None
        usual = int(median(intervals))
        allowed = usual // 4 + _TOLERANCE_MS
        regular = sum(abs(interval - usual) <= allowed for interval in intervals)
        return usual if 4 * regular >= 3 * (len(intervals) - 1) else None

    @property
    def early_ms(self) -> int | None:
        """Time of the first commit that came earlier than usual, if any: consumers also commit when
        they give up partitions, and when they are closed.
        """
        usual = self.usual_ms
        if usual is not None:
            for before, after in pairwise(self._times):
                if after > self.since_ms and usual - after + before > max(usual // 5, _EARLY_MS):
                    return after
        return None


TYPE_BYTES: Final = 2
"""Size of the record type, with which each key begins; the group id follows."""

_BATCH: Final = Struct(">qiibIhiq22xi")
"""The header of a batch, without maximum timestamp and producer."""

_OFFSET: Final = Struct(">hq")
_EPOCH: Final = Struct(">i")
_EPOCH_SINCE, _COMPACT_SINCE = 3, 4
"""First versions of the value with a leader epoch, and with a compact string of metadata."""
_LENGTH: Final = Struct(">h")
_TIME: Final = Struct(">q")
"""A value consists of `_OFFSET` (version and offset), `_EPOCH` (leader epoch), `_LENGTH` and the
metadata, and `_TIME` (of the commit)."""


class Reached(NamedTuple):
    """How far consecutive batches have been read."""

    position: int
    """Position of the next batch in the buffer."""
    offset: int
    """Offset of the next record."""
    batch_count: int = 0
    last_ms: int = -1
    """The last batch's maximum timestamp; its base timestamp if `skip` processed it."""


class Limits(NamedTuple):
    """Which batches and records to read."""

    leader_epoch: int
    """Leader epoch of the batches."""
    end_offset: int
    prefix: bytes | None
    """Ignore keys that do not have these bytes after the record type."""


class Commit:
    __slots__ = ("group_id", "partition", "signs", "topic_id", "value")

    def __init__(
        self, group_id: str, partition: TopicPartition, topic_id: bytes, value: bytes
    ) -> None:
        self.group_id = group_id
        self.partition = partition
        self.topic_id = topic_id
        """The topic id, with which the value ends; empty if it has none, as before Kafka 4."""
        self.value = value
        """The value of the last commit's record; contains the committed offset."""
        self.signs: Signs | None = None
        """The signs of life of the partition's owner; None: the next commit must be passed to
        `GroupWatch.commit`."""


def committed(value: bytes) -> CommittedOffset | None:
    """Decode the committed offset in a record's value, without checking the other fields; None if
    the value is too short.
    """
    try:
        version, offset = _OFFSET.unpack_from(value)
        cursor, epoch = _OFFSET.size, -1
        if version >= _EPOCH_SINCE:
            (epoch,) = _EPOCH.unpack_from(value, cursor)
            cursor += _EPOCH.size
        if version >= _COMPACT_SINCE:
            length, cursor = read_uvarint(value, cursor)
            length -= 1
        else:
            (length,) = _LENGTH.unpack_from(value, cursor)
            cursor += _LENGTH.size
        (at_ms,) = _TIME.unpack_from(value, cursor + max(length, 0))
    except (struct.error, IndexError, DecodeError):
        return None
    return CommittedOffset(offset, epoch, "", at_ms)


class KnownCommits:
    """The last commits of all groups, by record key."""

    __slots__ = ("_by_key", "get", "not_followed")

    def __init__(self) -> None:
        self._by_key: dict[bytes, Commit] = {}
        self.get = self._by_key.get
        self.not_followed = Commit("", ("", -1), b"", b"")
        """Placeholder for every commit of the groups that are not followed."""
        self.not_followed.signs = Signs(0)

    def __len__(self) -> int:
        return len(self._by_key)

    def all(self) -> Sequence[Commit]:
        """Return all commits of followed groups. May be called in any thread."""
        # One call into C, during which no other thread can change the commits.
        commits = list(self._by_key.values())
        return [commit for commit in commits if commit is not self.not_followed]

    def add(self, key: bytes, commit: Commit) -> None:
        self._by_key[key] = commit

    def remove(self, key: bytes) -> None:
        self._by_key.pop(key, None)

    def skip(self, batches: bytes, at: Reached, limits: Limits) -> Reached:
        """Process batches of commits of known partitions. Stop before the first batch that has
        other records, attributes or errors, or follows a gap. Some of its commits may have been
        processed already; processing them again has no effect.

        Args:
            batches: consecutive batches, the last of which may be incomplete.
            at: the end of the batches processed before.
        """
        position, offset, batch_count, last_ms = at
        leader_epoch, end_offset, prefix = limits
        view = memoryview(batches)
        size = len(batches)
        while offset < end_offset and size - position >= HEADER_BYTES:
            base_offset, length, epoch, magic, crc, attributes, last_delta, base_ms, count = (
                _BATCH.unpack_from(batches, position)
            )
            stop = position + length + LENGTH_OVERHEAD_BYTES
            if (
                base_offset != offset
                or epoch != leader_epoch
                or magic != MAGIC
                or attributes
                or last_delta != count - 1
                or length < LENGTH_MIN
                or stop > size
                or crc32c(view[position + CRC_START : stop]) != crc
            ):
                break
            try:
                if not self._take(batches, position + HEADER_BYTES, stop, base_ms, count, prefix):
                    break
            except IndexError:  # A malformed record, which the general decoder reports.
                break
            position = stop
            offset = base_offset + count
            batch_count += 1
            last_ms = base_ms
        return Reached(position, offset, batch_count, last_ms)

    def _take(  # noqa: C901, PLR0911, PLR0912 - a call for each field would cost more than the field.
        self, block: bytes, cursor: int, stop: int, base_ms: int, count: int, prefix: bytes | None
    ) -> bool:
        """Process a batch's records; return False at the first one that is not a commit of a known
        partition, has headers, or has a length that takes more than two bytes.
        """
        get = self.get
        while cursor < stop:
            count -= 1
            length = block[cursor]
            cursor += 1
            if length > 0x7F:
                high = block[cursor]
                cursor += 1
                if high > 0x7F:
                    return False
                length += (high << 7) - 0x80
            end = cursor + (length >> 1)
            delta_ms = block[cursor + 1]
            if delta_ms & 0x81 or end > stop:
                return False
            cursor += 3 if block[cursor + 2] < 0x80 else 4
            length = block[cursor]
            cursor += 1
            if length > 0x7F:
                high = block[cursor]
                cursor += 1
                if high > 0x7F:
                    return False
                length += (high << 7) - 0x80
            start = cursor
            cursor += length >> 1
            key = block[start:cursor]
            commit = get(key)
            if commit is None:
                if prefix is None or key.startswith(prefix, TYPE_BYTES):
                    return False
                cursor = end
                continue
            length = block[cursor]
            cursor += 1
            if length > 0x7F:
                high = block[cursor]
                cursor += 1
                if high > 0x7F:
                    return False
                length += (high << 7) - 0x80
            start = cursor
            cursor += length >> 1
            # The record ends with the number of its headers.
            if cursor != end - 1 or block[cursor] or length & 1:
                return False
            value = block[start:cursor]
            signs = commit.signs
            if signs is None or not value.endswith(commit.topic_id):
                return False
            commit.value = value
            at_ms = base_ms + (delta_ms >> 1)
            if at_ms != signs.commit_ms:
                signs.commit(at_ms)
            cursor = end
        return not count
