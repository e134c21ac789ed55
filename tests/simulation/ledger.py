"""What the simulation knows of the causes of rebalances, and what the broker says of them.

The ledger stands at the broker's door: it sees each request when it is delivered and each answer
when it is written, and knows which process sent it and why. From that alone it says whether the
group has to rebalance, because of whom, and what that member stated. From the broker it takes when
a rebalance began and a phase ended, never the reason; so the reason, in the coordinator's event and
in the record of the history, can be held against its own.

It is made for a world in which an append takes no time, and in which no two requests come in one
turn of the loop: each is dealt with before the next. A commit is not, at once: it waits for others
that come in its turn, and whatever else is asked of its group in that turn waits with it.
"""

from collections.abc import Callable
from typing import Any

from kohort.broker.core.coordinator_partitions import partition_of
from kohort.groups.events import Event
from kohort.groups.history.model import HistoryRecord
from kohort.groups.requests import Now
from tests.simulation.group_ledger import GroupLedger
from tests.simulation.process import Call
from tests.simulation.tally import Tally


class Ledger(Tally):
    def __init__(self, fail: Callable[[str], None]) -> None:
        super().__init__(fail)
        self._groups: dict[str, GroupLedger] = {}
        self._current: GroupLedger | None = None
        self._last: GroupLedger | None = None
        """To which something has just happened."""

    def group(self, group_id: str) -> GroupLedger:
        if group_id not in self._groups:
            self._groups[group_id] = GroupLedger(group_id, self)
        return self._groups[group_id]

    def delivered(self, call: Call, now_ms: int, wall_ms: int) -> None:
        self._current = self.group(call.request.group_id)
        self._current.delivered(call, now_ms, wall_ms)

    def answered(self, call: Call, answer: Any, now_ms: int) -> None:  # noqa: ANN401 - any answer.
        self.group(call.request.group_id).answered(call, answer, now_ms)

    def handled(self, now_ms: int) -> None:
        if self._current is not None:
            current, self._current = self._current, None
            current.handled(now_ms)

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        try:
            self._last = self.group(group_id)
            self._last.observe(event, now)
        except Exception as error:  # noqa: BLE001 - the broker is on the stack.
            self.fail(f"{error!r} while looking at {event}")

    def disk_failed(self, partition: int, partition_count: int, now: Now) -> None:
        """A write to that partition of the groups' log has come to nothing."""
        stepped = self._current or self._last
        for group in [self._current] if self._current else self._groups.values():
            if partition_of(group.group_id, partition_count) == partition:
                group.disk_failed(now, was_stepped=group is stepped)

    def told(self, record: HistoryRecord) -> None:
        self.group(record.group).told(record)

    def broker_died(self, *, killed: bool) -> None:
        for group in self._groups.values():
            group.broker_died(killed=killed)

    def missing(self) -> list[str]:
        """Groups with rebalances that have ended and that the history has not told of."""
        return [
            group.group_id
            for group in self._groups.values()
            if len(group.awaited.rebalances) > (group.running is not None)
            or group.awaited.unrecorded()
        ]
