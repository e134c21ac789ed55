"""Finds records that were deleted before they were read. Pure arithmetic on offsets.

Gaps between offsets are normal: compaction and transaction markers leave them. So only offsets
before the start of a log, or after its end, count as lost records.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

RETENTION: Final = "deleted before it was read (retention, or DeleteRecords)"
TRUNCATED: Final = "the log ends before the offset already read"
RECREATED: Final = "the topic was deleted and recreated"

SHOWN: Final = 10
"""Maximum number of gaps listed in an error."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Lost records of a partition, from `first` to before `end`, which is None if unknown."""

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
    """Return the lost records of a topic; `wanted` has the next offset to read of each partition.

    `starts` and `ends` are the current bounds of the logs. Partitions missing in `wanted` are new
    and are read from offset 0.
    """
    gaps = []
    for partition in sorted(starts):
        first, start = wanted.get(partition, 0), starts[partition]
        if start > first:
            gaps.append(Gap(partition, first, start, RETENTION))
        elif ends.get(partition, first) < first:
            gaps.append(Gap(partition, ends[partition], first, TRUNCATED))
    return gaps


def missing(present: Iterable[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of [first, end) that are not in `present`, in order, as pairs of first and
    end.
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
    shown = "; ".join(str(gap) for gap in gaps[:SHOWN])
    more = f"; and {len(gaps) - SHOWN} more" if len(gaps) > SHOWN else ""
    return f"records of {topic} were lost before they were landed: {shown}{more}"
