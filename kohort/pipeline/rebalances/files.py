"""Histories from files as records, piece by piece, so that they may be larger than memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo

from kohort.insight.history_files import Line, check, histories
from kohort.pipeline.events import Record
from kohort.pipeline.rebalances.ingest import BATCH_BYTES, BATCH_RECORDS

__all__ = ["Piece", "check", "pieces"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Lines of a file that make one batch."""

    name: str
    lines: list[Line]

    def records(self, cluster_id: str) -> Iterator[Record]:
        """The lines as records of that cluster."""
        for number, line in self.lines:
            yield Record(cluster_id, self.name, 0, number, None, None, line)


def pieces(paths: Sequence[str], zone: tzinfo) -> Iterator[Piece]:
    """All files, in the order given. Raises what `histories` raises."""
    for name, lines in histories(paths, zone):
        yield from _cut(name, lines)


def _cut(name: str, lines: Iterator[Line]) -> Iterator[Piece]:
    held: list[Line] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line[1])
        if len(held) >= BATCH_RECORDS or size >= BATCH_BYTES:
            yield Piece(name, held)
            held, size = [], 0
    if held:
        yield Piece(name, held)
