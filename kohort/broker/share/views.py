"""Describes the present state of a share-partition, for pages, console and `kohort groups`: as
JSON, and as sentences about its start, its next fetch and single records.

Everything is read at the time of the request.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from kohort.broker.share.delivery import ShareDelivery
from kohort.broker.share.log_read import Wanted, read_cached
from kohort.broker.share.partition import SharePartition
from kohort.broker.share.reports import Ended, How
from kohort.broker.topics.partition import Partition
from kohort.formats.text import counted, duration, shown
from kohort.groups.requests import Now
from kohort.groups.share.acquire import records_to_take, throttle_threshold
from kohort.groups.share.segments import Lock, Segment
from kohort.groups.share.states import RecordState
from kohort.groups.share.window import Window
from kohort.protocol.errors import KafkaError

Json: TypeAlias = dict[str, Any]

_HOW_TEXT: Final = {
    How.RELEASED: "released it",
    How.LOCK_TIMEOUT: "did not acknowledge it before its lock timed out",
    How.SESSION_END: "ended its session without acknowledging it",
    How.REJECTED: "rejected it",
}


_FINISHED_TEXT: Final = {
    RecordState.ACKNOWLEDGED: "it was accepted",
    RecordState.ARCHIVING: "its dead letter is being written; it was archived",
    RecordState.ARCHIVED: "it was archived",
}


class SharePartitionView:
    """The state of one share-partition at one time; valid until the next await."""

    def __init__(
        self,
        delivery: ShareDelivery,
        share: SharePartition,
        log: Partition,
        window: Window,
        now: Now,
    ) -> None:
        self.share = share
        self.log = log
        self.window = window
        self.now = now
        self.settings = delivery.partitions.settings(share.key.group_id)
        self.lag = delivery.partitions.lag(share)
        self.name = f"{shown(log.topic_name)}-{log.index}"
        self._report = delivery.partitions.reports.get(share.key.group_id)

    @property
    def oldest_lock(self) -> Lock | None:
        return min(self.window.locks(), key=lambda lock: lock.since_ms, default=None)

    @property
    def in_flight(self) -> int:
        return self.window.end_offset - self.window.start_offset + 1

    def segment(self, offset: int) -> Segment | None:
        """Return the segment of the window that contains `offset`; None if it is not in flight."""
        first = next(self.window.segments(offset), None)
        return first if first is not None and first.first <= offset <= first.last else None

    # JSON.

    def as_json(self) -> Json:
        window, share = self.window, self.share
        held = share.held_offset is not None
        return {
            "topic": self.log.topic_name,
            "partition": self.log.index,
            "start": window.start_offset,
            "end": window.end_offset,
            "log_end": self.log.high_watermark,
            "lag": self.lag,
            "available": window.available_count,
            "acquired": sum(lock.held for lock in window.locks()),
            "finished": window.delivery_complete_count,
            "max_record_locks": self.settings.window.max_record_locks,
            "oldest_lock": self._lock_json(self.oldest_lock),
            "held_since_ms": self._wall(share.held_since_ms) if held else None,
            "counts": dict(share.own_counts),
        }

    def _lock_json(self, lock: Lock | None) -> Json | None:
        if lock is None:
            return None
        segment = next(each for each in self.window.segments() if each.lock is lock)
        return {
            "offset": segment.first,
            "records": lock.held,
            "member_id": lock.member_id,
            "delivery_count": segment.count,
            "since_ms": self._wall(lock.since_ms),
            "until_ms": self._wall(lock.deadline_ms),
        }

    def _wall(self, ms: int) -> int:
        return self.now.wall_ms + ms - self.now.ms

    # Sentences.

    def start_text(self) -> str:
        """Say which record keeps the start offset from advancing, and why."""
        start = self.window.start_offset
        segment = self.segment(start)
        if segment is None:
            return f"Nothing of {self.name} is in flight; it starts at offset {start:,}."
        held = ""
        if self.share.held_offset == start:
            held = f" for {duration(self.now.ms - self.share.held_since_ms)}"
        state = self._state_text(segment)
        return (
            f"Record {start:,} has kept the start offset of {self.name} from advancing{held}: "
            f"{state}."
        )

    def _state_text(self, segment: Segment) -> str:
        limit = self.settings.window.delivery_count_limit
        count = segment.count
        if segment.lock is not None:
            since_ms = self.now.ms - segment.lock.since_ms
            left_ms = max(segment.lock.deadline_ms - self.now.ms, 0)
            return (
                f"member {shown(segment.lock.member_id)} acquired it {duration(since_ms)} ago, at "
                f"delivery {count} of {limit}, and the lock expires in {duration(left_ms)}"
            )
        if segment.write is not None:
            return "its new state is being stored"
        if segment.state is RecordState.SKIPPED:
            return "it is not delivered: its transaction was aborted, or the log lacks it"
        done = _FINISHED_TEXT.get(segment.state)
        if done is not None:
            return f"{done} at delivery {count}"
        if count:
            return f"it is available again after {count} of {limit} deliveries"
        return "it is available and was not delivered yet"

    def fetch_text(self) -> str:
        """Describe which records the next fetch acquires, or why it acquires none."""
        reason = self._obstacle(self.window, self.log)
        if reason is not None:
            return f"A fetch acquires nothing: {reason}."
        position = self.window.position
        throttled = self._throttled(position)
        if throttled is None:
            return f"A fetch acquires records from offset {position:,} on."
        most, count = throttled
        limit = self.settings.window.delivery_count_limit
        return (
            f"A fetch acquires at most {counted(most, 'record')} from offset {position:,} on, and "
            f"nothing after them: they were delivered {count} of {limit} times, so few are "
            "delivered together, to find the record that fails."
        )

    def _obstacle(self, window: Window, log: Partition) -> str | None:
        """Return why a fetch acquires no records; None if it acquires some."""
        if not window.can_acquire:
            return (
                f"{counted(self.in_flight, 'record')} are in flight, the limit is "
                f"{self.settings.window.max_record_locks:,} (share.partition.max.record.locks), "
                f"and none of them is available. Record {window.start_offset:,} keeps the start "
                "offset from advancing"
            )
        position = window.position
        try:
            stable, opened = log.last_stable_offset, log.open_transactions(1)
        except KafkaError:
            return f"{self.name} is offline"
        if self.settings.committed_only and stable <= position < log.high_watermark:
            producer = f" of producer {opened[0].producer_id}" if opened else ""
            return (
                f"the group reads committed records only, and a transaction{producer} is open from "
                f"offset {stable:,} on"
            )
        if position < log.high_watermark:
            return None
        lock_ms = window.next_deadline_ms
        if lock_ms is None:
            return "all records are finished. It waits for new ones"
        left = duration(max(lock_ms - self.now.ms, 0))
        return (
            "all records are locked or finished. It waits for new ones, or for a lock, of which "
            f"the first expires in {left}"
        )

    def _throttled(self, position: int) -> tuple[int, int] | None:
        """Return the maximum number of records that a fetch acquires from the range at `position`,
        and the delivery count that causes this limit; None without a limit.
        """
        limit = self.settings.window.delivery_count_limit
        segment = self.segment(position)
        if segment is None or segment.origin is None:
            return None
        origin = segment.origin
        for each in self.window.segments(position):
            if each.origin is not origin:
                break
            if (
                each.state is RecordState.AVAILABLE
                and each.write is None
                and each.count >= throttle_threshold(limit)
            ):
                size = origin.last - origin.first + 1
                return records_to_take(size, each.count, limit), each.count
        return None

    def record_texts(self, offset: int) -> Iterator[str]:
        """Yield lines about one record: its state, and how its recent deliveries ended."""
        report = self._report
        known = [] if report is None else report.deliveries_of(self.share.key, offset)
        is_archived = any(ended.is_archived for ended in known)
        state = "it was archived" if is_archived else self._record_text(offset)
        yield f"Record {offset:,} of {self.name}: {state}."
        for ended in known:
            yield f"  {self._ended_text(ended, offset)}."

    def _record_text(self, offset: int) -> str:
        window, log = self.window, self.log
        segment = self.segment(offset)
        if segment is not None:
            return self._state_text(segment)
        if offset > window.end_offset:
            exists = offset < log.high_watermark
            return "it was not delivered yet" if exists else "it does not exist yet"
        if offset < log.log.log_start_offset:
            return "it was deleted from the log"
        if self._is_aborted(log, offset):
            return "it was not delivered, because its transaction was aborted"
        return "it is finished, or lies before the offset at which the group began"

    def _is_aborted(self, log: Partition, offset: int) -> bool:
        """Whether a record belongs to an aborted transaction; False if its batch is not cached."""
        if not self.settings.committed_only:
            return False
        try:
            read = read_cached(log, Wanted(offset, offset + 1, 1, 1, committed_only=True))
        except KafkaError:
            return False
        return read is not None and bool(read.batches) and read.batches[0].is_aborted

    def _ended_text(self, ended: Ended, offset: int) -> str:
        """Describe how and when a delivery ended."""
        ago = f"{duration(max(self.now.wall_ms - ended.at_ms, 0))} ago"
        if ended.how is How.DELETED:
            return f"Deleted from the log before the group had finished it, {ago}"
        member = "a member" if ended.member_id is None else f"member {shown(ended.member_id)}"
        archived = ""
        if ended.is_archived and ended.how is not How.REJECTED:
            archived = ", and the delivery count limit is reached"
        text = f"Delivery {ended.delivery_count}: {member} {_HOW_TEXT[ended.how]}{archived}, {ago}"
        letter = ended.dead_letter
        if letter is None:
            return text
        if letter.error is not None:
            return f"{text}. It has no dead letter: {letter.error}"
        place = f"{shown(letter.topic)}-{letter.partition}"
        return f"{text}. Its dead letter is at offset {offset + letter.distance:,} of {place}"


def view_of(delivery: ShareDelivery, share: SharePartition, now: Now) -> SharePartitionView | None:
    """Return the view of a share-partition; None if its topic was deleted, or while its start
    offset is being determined.
    """
    log = delivery.partitions.find(share.key.topic_id, share.key.partition)
    window, state = share.window, share.state
    if log is None or share.is_gone or (window is None and state is None):
        return None
    if window is None:
        assert state is not None
        settings = delivery.partitions.settings(share.key.group_id)
        window = Window(settings.window, state.start_offset, state.batches)
    return SharePartitionView(delivery, share, log, window, now)


def ended_json(ended: Ended, topic: str | None) -> Json:
    """Return the JSON of one entry in the list of archived or of released records."""
    return {
        "topic": topic,
        "partition": ended.key.partition,
        "first_offset": ended.first_offset,
        "last_offset": ended.last_offset,
        "how": ended.how.value,
        "member_id": ended.member_id,
        "delivery_count": ended.delivery_count,
        "at_ms": ended.at_ms,
        "dead_letter": _dead_letter_json(ended),
    }


def _dead_letter_json(ended: Ended) -> Json | None:
    letter = ended.dead_letter
    if letter is None or letter.error is not None:
        return None if letter is None else {"error": letter.error}
    first_offset = ended.first_offset + letter.distance
    return {"topic": letter.topic, "partition": letter.partition, "first_offset": first_offset}
