"""A reader of either isolation level: it leaves out by itself what it is told was aborted."""

import random
import time
from collections import deque
from collections.abc import Mapping
from typing import Final

from kohort.protocol.messages.fetch import PartitionData
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.control import ControlType, decode_marker
from kohort.protocol.records.record import decode_records
from tests.histories.history import Poll
from tests.histories.links import Link, Links, LostError
from tests.histories.logs import log_of, place_of
from tests.support import messages as m

_VERSION: Final = 12
_SIZES: Final = (500, 4_000, 64_000, 1 << 20)
"""Bytes to ask for, so that answers end anywhere."""


class Reader:
    """Goes on in each of its logs where it was."""

    def __init__(
        self,
        links: Links,
        name: str,
        positions: Mapping[int, int],
        chance: random.Random,
        *,
        is_committed: bool,
    ) -> None:
        """`positions` by log: where it begins."""
        self.name = name
        self.positions = dict(positions)
        self._is_committed = is_committed
        self._links = links
        self._link = Link(links)
        self._chance = chance
        self._stable: dict[int, int] = {}

    def close(self) -> None:
        self._link.close()

    def poll(self, *, wait_ms: int = 100) -> list[Poll]:
        """What is new in its logs; nothing if the answer is lost."""
        topics: dict[str, list[m.FetchPartition]] = {}
        bytes_max = self._chance.choice(_SIZES)
        for log, position in self.positions.items():
            topic, index = place_of(log)
            asked = m.FetchPartition(
                partition=index, fetch_offset=position, partition_max_bytes=bytes_max
            )
            topics.setdefault(topic, []).append(asked)
        request = m.FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation_level=int(self._is_committed),
            topics=[m.FetchTopic(topic=name, partitions=asked) for name, asked in topics.items()],
        )
        try:
            answer: m.FetchResponse = self._link.ask(request, _VERSION)
        except LostError:
            return []
        polls = []
        for answered in answer.responses:
            for data in answered.partitions:
                if data.error_code:
                    self._links.note_refusal(request, data.error_code)
                    continue
                poll = self._read(log_of(answered.topic, data.partition_index), data)
                if poll is not None:
                    polls.append(poll)
        return polls

    def _read(self, log: int, data: PartitionData) -> Poll | None:
        """Poll made of a log's data; None if it says nothing that was not known."""
        start = self.positions[log]
        records, end = visible(data, start, is_committed=self._is_committed)
        if end == start and self._stable.get(log) == data.last_stable_offset:
            return None
        self.positions[log] = end
        self._stable[log] = data.last_stable_offset
        return Poll(
            self.name,
            self._is_committed,
            log,
            start,
            end,
            tuple(records),
            data.last_stable_offset,
            time.monotonic(),
        )


def visible(
    data: PartitionData, start: int, *, is_committed: bool
) -> tuple[list[tuple[int, int]], int]:
    """(offset, value) of the records from `start` on, and where to go on."""
    aborted = deque(
        sorted((one.first_offset, one.producer_id) for one in data.aborted_transactions or ())
    )
    dropped: set[int] = set()
    """Producers whose records are left out, up to their markers."""
    records: list[tuple[int, int]] = []
    end = start
    for header, batch in split_batches(data.records or b"", partial_tail=True):
        end = max(end, header.next_offset)
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.popleft()[1])
        if header.is_control:
            marker = decode_marker(batch, header) if header.record_count else None
            if marker is not None and marker.control_type is ControlType.ABORT:
                dropped.discard(header.producer_id)
            continue
        if is_committed and header.is_transactional and header.producer_id in dropped:
            continue
        records += (
            (record.offset, int(record.value or b""))
            for record in decode_records(batch, header)
            if record.offset >= start
        )
    return records, end
