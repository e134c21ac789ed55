"""Makes week.jsonl.gz, the history of a week in three groups that was never lived by anybody.

    python examples/rebalance-week/make_week.py

`billing` is deployed twice a working day, crashes now and then, and has a member that is slow to
join. `search` is scaled out in the morning and in at night, and its topic grows. `payments` has
static members, of which one pauses for longer than its session lasts. Their members are simulated,
the broker's rules and the making of the history are not. The same script makes the same week.
"""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final, TextIO

from kohort.insight.advisor.classic_replay import ClassicReplay
from kohort.insight.advisor.setting import Setting
from kohort.insight.advisor.trace import Delays, End, Pause, Rejoin, Run, Slot, Trace
from kohort.protocol.join_reason import JoinReason

sys.path.insert(0, str(Path(__file__).parent))
from recorder import ConsumerWire, Recorder

SECOND: Final = 1_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
MONDAY_MS: Final = 1_767_571_200_000
"""5 January 2026, midnight in UTC."""
WEEK_MS: Final = 7 * DAY
OUTPUT: Final = Path(__file__).parent / "week.jsonl.gz"


@dataclass
class Life:
    """The processes of one group, as they come and go."""

    group: str
    runs: dict[int, list[Run]] = field(default_factory=dict)
    pauses: dict[int, list[Pause]] = field(default_factory=dict)
    rejoins: list[Rejoin] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(self.group)  # noqa: S311 - chance that can be repeated.

    def start(self, slot: int, at_ms: int) -> None:
        self.runs.setdefault(slot, []).append(Run(at_ms))

    def stop(self, slot: int, at_ms: int, end: End) -> None:
        last = self.runs[slot][-1]
        if last.end_ms is None and last.start_ms < at_ms:
            self.runs[slot][-1] = replace(last, end_ms=at_ms, end=end)

    def restart(self, slot: int, at_ms: int, away_ms: int, end: End = End.LEFT) -> None:
        self.stop(slot, at_ms, end)
        self.start(slot, at_ms + away_ms)

    def alive(self) -> list[int]:
        return [slot for slot, runs in sorted(self.runs.items()) if runs[-1].end_ms is None]

    def deploy(self, at_ms: int, pace_ms: int, away_ms: int) -> None:
        """One process after the other."""
        for place, slot in enumerate(self.alive()):
            late_ms = self.chance.randrange(3 * SECOND)
            self.restart(slot, at_ms + place * pace_ms + late_ms, away_ms + late_ms)

    def trace(self, setting: Setting, partitions: int, joins: dict[int, Delays]) -> Trace:
        usual = [self.chance.randrange(30, 400) for _ in range(200)]
        slots = []
        for slot in range(max(self.runs) + 1):
            samples = [
                (MONDAY_MS + number * HOUR, self.chance.choice(usual)) for number in range(168)
            ]
            slots.append(
                Slot(
                    name=f"{self.group}-{slot}",
                    client_id=f"{self.group}-{slot}",
                    host=f"/10.0.{len(self.group)}.{slot + 10}",
                    instance_id=f"{self.group}-{slot}" if setting.static else None,
                    runs=tuple(self.runs[slot]),
                    pauses=tuple(self.pauses.get(slot, ())),
                    join=joins.get(slot) or Delays.from_samples(samples, neighbours=1),
                    assign=Delays((MONDAY_MS,), (40 + 5 * slot,)),
                    sync=Delays((MONDAY_MS,), (3 + slot % 3,)),
                )
            )
        return Trace(
            group=self.group,
            slots=tuple(slots),
            rejoins=tuple(self.rejoins),
            begin_ms=MONDAY_MS,
            end_ms=MONDAY_MS + WEEK_MS,
            recorded=setting,
            partition_count=partitions,
        )


def days() -> Iterator[tuple[int, int]]:
    """(number, midnight) of each, Monday first."""
    return ((number, MONDAY_MS + number * DAY) for number in range(7))


def billing() -> tuple[Trace, Setting]:
    """Eager and dynamic, with the short session that was the default long ago."""
    life = Life("billing")
    for slot in range(6):
        life.start(slot, MONDAY_MS + slot * 400)
    for day, midnight in days():
        for _ in range(2):
            at_ms = midnight + life.chance.randrange(HOUR, 9 * HOUR)
            slot = life.chance.choice(life.alive())
            life.restart(slot, at_ms, life.chance.choice((25, 50, 240)) * SECOND, End.SILENT)
        if day < 5:
            life.deploy(midnight + 10 * HOUR, 45 * SECOND, 18 * SECOND)
            life.deploy(midnight + 15 * HOUR + 30 * MINUTE, 45 * SECOND, 18 * SECOND)
    # Its polls take long, most of all at the end of the week.
    slow = Delays.from_samples(
        [
            (MONDAY_MS + number * HOUR, 9 * SECOND + number * 60 + life.chance.randrange(4_000))
            for number in range(168)
        ],
        neighbours=1,
    )
    setting = Setting(static=False, session_timeout_ms=10_000)
    return life.trace(setting, 24, {4: slow}), setting


def search() -> tuple[Trace, Setting]:
    """Cooperative, and as many members as the day needs."""
    life = Life("search")
    for slot in range(3):
        life.start(slot, MONDAY_MS + slot * 300)
    for day, midnight in days():
        most = 8 if day < 5 else 5
        for slot in range(3, most):
            life.start(slot, midnight + 7 * HOUR + slot * 9 * MINUTE)
        if day in {1, 3}:
            life.rejoins.append(
                Rejoin(midnight + 12 * HOUR, None, JoinReason.TOPIC_METADATA_CHANGE)
            )
        for slot in reversed(range(3, most)):
            life.stop(slot, midnight + 19 * HOUR + (8 - slot) * 11 * MINUTE, End.LEFT)
    setting = Setting(static=False, session_timeout_ms=45_000, cooperative=True)
    return life.trace(setting, 32, {}), setting


def payments() -> tuple[Trace, Setting]:
    """Static members, deployed on Tuesday and Thursday; number 2 pauses when memory is short."""
    life = Life("payments")
    for slot in range(4):
        life.start(slot, MONDAY_MS + slot * 500)
    for day, midnight in days():
        for number in range(2 if day in {2, 4, 5} else 0):
            begun_ms = midnight + (2 + 3 * number) * HOUR + life.chance.randrange(HOUR)
            lasts_ms = life.chance.randrange(40, 75) * SECOND
            life.pauses.setdefault(2, []).append(Pause(begun_ms, begun_ms + lasts_ms))
        if day in {1, 3}:
            life.deploy(midnight + 11 * HOUR, 60 * SECOND, 22 * SECOND)
    setting = Setting(static=True, session_timeout_ms=30_000)
    return life.trace(setting, 12, {}), setting


def write_week(output: TextIO) -> int:
    """All records, group by group; returns how many."""
    count = 0
    for make in (billing, search, payments):
        trace, setting = make()
        recorder = Recorder(trace.group)
        wire = ConsumerWire(f"{trace.group}-events")
        ClassicReplay(trace, setting, seed=1, encoding=wire, watch=recorder.observe).run()
        recorder.end()
        recorder.write(output)
        count += len(recorder.records)
    return count


def main() -> None:
    # Without the time in its head, the file is the same whenever it is made.
    text = io.StringIO()
    count = write_week(text)
    OUTPUT.write_bytes(gzip.compress(text.getvalue().encode(), 9, mtime=0))
    print(f"{OUTPUT.name}: {count} records")


if __name__ == "__main__":
    main()
