"""Which records are gone that were still to be read. Pure arithmetic on offsets.

Holes between offsets are nothing unusual: compaction and the marks of transactions leave them. So
only what lies before the start of a log, or behind its end, counts as lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

RETENTION: Final = "deleted before it was read (retention, or DeleteRecords)"
TRUNCATED: Final = "the log ends before what was read already"
RECREATED: Final = "the topic was deleted and recreated"

SHOWN: Final = 10
"""Gaps that an error names one by one."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of a partition from `first` up to, and without, `end`; None if unknown."""

    partition: int
    first: int
    end: int | None
    reason: str

    def __str__(self) -> str:
        if self.end is None:
            return f"partition {self.partition} from offset {self.first} on"
        return f"partition {self.partition} offsets {self.first} to {self.end - 1}"


def lost(
    wanted: Mapping[int, int], starts: Mapping[int, int], ends: Mapping[int, int]
) -> list[Gap]:
    """What is gone of a topic whose next record to be read is `wanted`, by partition.

    `starts` and `ends` are those of the logs now. Partitions that are not among `wanted` are new:
    what is to be read of them begins at 0.
    """
    found = []
    for partition in sorted(starts):
        first, start = wanted.get(partition, 0), starts[partition]
        if start > first:
            found.append(Gap(partition, first, start, RETENTION))
        elif ends.get(partition, first) < first:
            found.append(Gap(partition, ends[partition], first, TRUNCATED))
    return found


def missing(present: Iterable[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """The stretches of [first, end) that lie between stretches that are present.

    `present` are ranges (from, up to and without), in order and apart from each other.
    """
    holes = []
    at = first
    for begin, behind in present:
        if begin > at:
            holes.append((at, min(begin, end)))
        at = max(at, behind)
    if at < end:
        holes.append((at, end))
    return holes


def sentence(topic: str, gaps: list[Gap]) -> str:
    """The gaps in one sentence."""
    shown = "; ".join(str(gap) for gap in gaps[:SHOWN])
    more = f"; and {len(gaps) - SHOWN} more" if len(gaps) > SHOWN else ""
    return f"records of {topic} are gone that were not landed yet: {shown}{more}"
