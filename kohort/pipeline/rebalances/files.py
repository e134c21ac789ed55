"""Reads histories from files as records, in chunks, so that files may be larger than memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from kohort.insight.history_files import Line, check, histories
from kohort.pipeline.events import Record
from kohort.pipeline.rebalances.ingest import BATCH_BYTES, BATCH_RECORDS

__all__ = ["Chunk", "check", "chunks"]


@dataclass(frozen=True, slots=True)
class Chunk:
    name: str
    lines: list[Line]

    def records(self, cluster_id: str) -> Iterator[Record]:
        for number, line in self.lines:
            yield Record(cluster_id, self.name, 0, number, None, None, line)


def chunks(paths: Sequence[str], zone: tzinfo) -> Iterator[Chunk]:
    """Yield the chunks of all files, in the given order. Raises the errors of `histories`."""
    for name, lines in histories(paths, zone):
        yield from _cut(name, lines)


def _cut(name: str, lines: Iterator[Line]) -> Iterator[Chunk]:
    held: list[Line] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line[1])
        if len(held) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield Chunk(name, held)
            held, size = [], 0
    if held:
        yield Chunk(name, held)
