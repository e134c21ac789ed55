"""Restores the history from its topic at startup.

Texts are added to the rings unparsed. Only a rebalance recorded as running, with no
record after it, is parsed: the broker stopped before it ended, so it becomes unfinished.
"""

import logging
from collections.abc import Iterator

from kohort.broker.history.recovery import RecordedGenerations
from kohort.broker.history.rings import Rings, pack
from kohort.broker.history.topic import RUNNING, Entry, HistoryLog
from kohort.broker.runtime.slices import Monotonic, Slice
from kohort.groups.history.names import AVOIDED, REBALANCE
from kohort.protocol.errors import KafkaError

logger = logging.getLogger(__name__)


async def restore(
    log: HistoryLog, rings: Rings, clock: Monotonic, recorded: RecordedGenerations | None = None
) -> list[Entry]:
    """Fill the rings, and record which generations have records; return entries to be written, for
    rebalances that the last shutdown interrupted.
    """
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
    elif entry.kind in {REBALANCE, AVOIDED}:
        is_rebalance = entry.kind == REBALANCE
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
