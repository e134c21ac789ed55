"""Restores the history from its topic at startup.

Records are added to the groups' rings unparsed. Only a record of a running rebalance, without a
later record, is parsed: the broker stopped before the rebalance ended, so it becomes unfinished.

Rebalances that are in the groups' log but missing in the history are found at the same time. A
generation is in the group's log before any member gets its assignment. Its history record follows
when all members have it, so a process that is killed in between leaves a generation without a
record. Startup compares log and history while it loads the groups, and writes the missing records.
Only the tail of the history is read. Generations older than the tail are ignored: each has its
record, unless thousands of other records were written in the seconds between a generation and its
record.
"""

import logging
from collections.abc import Iterable, Iterator

from kohort.broker.history.rings import Rings, pack
from kohort.broker.history.topic import RUNNING, HistoryLog
from kohort.broker.runtime.slices import Monotonic, Slice
from kohort.groups.classic.stored_cause import StoredCause, decode_cause
from kohort.groups.history.entry import Entry
from kohort.groups.history.names import ASSIGNED, AVOIDED, REBALANCE
from kohort.groups.records import Generation
from kohort.protocol.errors import KafkaError

logger = logging.getLogger(__name__)


class RecordedGenerations:
    """Generations that have records in the tail of the history, the part read at startup."""

    def __init__(self, *, is_whole: bool = False) -> None:
        self.is_whole = is_whole
        """Whether the log was read from its very first record."""
        self._oldest_ms: int | None = None
        self._written_ms: dict[str, dict[int, int]] = {}

    def add(self, entry: Entry) -> None:
        if self._oldest_ms is None:
            self._oldest_ms = entry.wall_ms
        if entry.generation is not None:
            self._written_ms.setdefault(entry.group_id, {})[entry.generation] = entry.wall_ms

    def missing(self, generations: Iterable[Generation]) -> list[tuple[Generation, StoredCause]]:
        """Return those of a group's generations that lack a record in the history, in order."""
        found: list[tuple[Generation, StoredCause]] = []
        for stored in generations:
            if stored.begun is None:
                continue
            try:
                begun = decode_cause(stored.begun)
                if not self._has(stored, max(stored.state_timestamp_ms, begun.started_at_ms)):
                    found.append((stored, begun))
            except ValueError as error:
                logger.warning(
                    "Generation %d of group %r has no record in the history, and none can be "
                    "created: %s",
                    stored.generation,
                    stored.group_id,
                    error,
                )
        return found

    def _has(self, stored: Generation, stored_ms: int) -> bool:
        """Whether the generation's record is in the tail, or may be in the unread part before it.

        A group that is created again after its deletion begins at generation 1: a record that was
        written before this generation was stored belongs to the deleted group.
        """
        written_ms = self._written_ms.get(stored.group_id, {}).get(stored.generation)
        if written_ms is not None and written_ms >= stored_ms:
            return True
        if self.is_whole:
            return False
        return self._oldest_ms is None or stored_ms < self._oldest_ms


async def restore(
    log: HistoryLog, rings: Rings, clock: Monotonic, recorded: RecordedGenerations | None = None
) -> list[Entry]:
    """Read the records into `rings`; return the entries to write for interrupted rebalances."""
    running: dict[str, Entry] = {}
    time_slice = Slice(clock)  # No client is served yet, but health probes are answered.
    try:
        for entry in log.read():
            _take(entry, rings, running)
            if recorded is not None:
                recorded.add(entry)
            await time_slice.pause()
    except KafkaError as error:
        logger.warning("The rest of the rebalance history cannot be read: %s", error)
    entries: list[Entry] = []
    for entry in _unfinished(running):
        entries.append(entry)
        rings.add(entry.group_id, entry.sequence, pack(entry.text), is_rebalance=True)
        await time_slice.pause()
    if len(rings):
        noun = "group" if len(rings) == 1 else "groups"
        logger.info("Restored %d %s to the rebalance history", len(rings), noun)
    return entries


def _take(entry: Entry, rings: Rings, running: dict[str, Entry]) -> None:
    if entry.kind == RUNNING:
        running[entry.group_id] = entry
    elif entry.kind in {REBALANCE, AVOIDED, ASSIGNED}:
        is_rebalance = entry.kind != AVOIDED
        rings.add(entry.group_id, entry.sequence, pack(entry.text), is_rebalance=is_rebalance)
        begun = running.get(entry.group_id)
        if begun is not None and begun.sequence <= entry.sequence:
            del running[entry.group_id]


def _unfinished(running: dict[str, Entry]) -> Iterator[Entry]:
    for entry in running.values():
        from kohort.broker.history.record_maker import unfinished  # noqa: PLC0415 - rarely needed.

        try:
            text = unfinished(entry.text)
        except ValueError as error:
            logger.warning("Skipped an entry of the rebalance history: %s", error)
            continue
        if text is not None:
            yield entry._replace(kind=REBALANCE, text=text)
