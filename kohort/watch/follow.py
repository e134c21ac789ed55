"""``kohort watch``: follows the groups of a cluster, and yields each rebalance when it is known;
with ``--once``, returns their history as far as __consumer_offsets reaches back.
"""

from collections.abc import Container, Iterator
from time import sleep, time
from typing import Final, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.watch.log_files import LogFiles
from kohort.watch.poller import Poller
from kohort.watch.reader import Json, OffsetsReader, Report

POLL_S: Final = 1.0
BUSY_POLL_S: Final = 0.25
"""Poll interval while a group is rebalancing, or the records of an operation may be incomplete, so
that rebalances are printed in time."""

_LATER_MS: Final = 1_000
"""Assumed maximum time until all records of one coordinator operation can be read."""


class AnyFollower:
    """Follows groups until a permanent error; retries after temporary ones."""

    def __init__(self, poll_s: float, logs: LogFiles | None) -> None:
        """`poll_s`: seconds between polls; 0: never poll."""
        self._poll_s = poll_s
        self._logs = logs
        self.denials: set[int] = set()
        """Codes of the authorization errors in responses that describe groups."""
        self.trouble: str | None = None
        """Why the cluster cannot be read at present."""

    def follow(self) -> Iterator[Json | None]:
        """Yield records of rebalances as they become known, and None after each poll; never ends.

        Retries while no broker answers, or a partition has no leader. Raises the other errors of
        `OffsetsReader`.
        """
        while True:
            try:
                yield from self._step()
                self.trouble = None
            except (DisconnectedError, RefusedError) as error:
                if isinstance(error, RefusedError) and not ErrorCode(error.error).retriable:
                    raise
                self.trouble = str(error)
                self._lose_sight()
            yield None
            sleep(self._pause_s())

    def _step(self) -> Iterator[Json]:
        """Poll once, and yield the records of rebalances that have become known."""
        raise NotImplementedError

    def _lose_sight(self) -> None:
        """For subclasses: called after each poll that failed with a temporary error."""

    def _pause_s(self) -> float:
        return self._poll_s


class Follower(AnyFollower):
    """Reads new records of __consumer_offsets, and polls which groups are rebalancing."""

    def __init__(
        self,
        cluster: Cluster,
        group: str | None,
        left_out: Container[str] = (),
        logs: LogFiles | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        """Raises the errors of `OffsetsReader`."""
        super().__init__(poll_s, logs)
        self._reader = OffsetsReader(cluster, group, left_out)
        self._poller = Poller(cluster, self._now_ms)
        self.watcher = self._reader.watcher
        self.denials = self._poller.denials

    @property
    def lag(self) -> int:
        """Number of records that are not read yet. May be read in any thread."""
        return self._reader.lag

    @property
    def is_blind(self) -> bool:
        """Whether polls show no group, although some exist: the user may not describe them."""
        return self._poller.is_blind and self.group_count > 0

    @property
    def group_count(self) -> int:
        return len(self.watcher.since_ms)

    def catch_up(self, report: Report) -> Iterator[Json]:
        ends = self._reader.ends()
        if self._logs is not None:
            self._logs.read_past(self.watcher.logs, to_end=False)
        yield from self._reader.read(ends, report)
        self._reader.is_live = True
        yield from self.watcher.flush(self._now_ms() - _LATER_MS)

    def _lose_sight(self) -> None:
        self.watcher.forget_polls()

    def _pause_s(self) -> float:
        pause_s = self._poll_s or POLL_S
        is_busy = self._poller.is_busy or self.watcher.is_pending
        return min(pause_s, BUSY_POLL_S) if is_busy else pause_s

    def _step(self) -> Iterator[Json]:
        ends = self._reader.ends()
        # Logs first: the lines of all records up to `ends` are written by now.
        if self._logs is not None:
            self._logs.read_new(self.watcher.logs)
        # Without the difference of the clocks, the order of polls and commits could be wrong.
        if self._poll_s and self._poller.can_poll and self._reader.ahead_ms is not None:
            self._poller.poll(self.watcher)
        yield from self._reader.read(ends)
        yield from self.watcher.flush(self._now_ms() - _LATER_MS)

    def _now_ms(self) -> int:
        """Return the time by the clock of the coordinators, or a little less."""
        return int(time() * 1000) - (self._reader.ahead_ms or 0)


class History(NamedTuple):
    records: list[Json]
    """History records, group by group, the oldest of each group first."""
    since_ms: dict[str, int]
    """How far back the history of each group reaches."""
    unread_count: int
    """Records that could not be decoded."""


def read_history(
    cluster: Cluster,
    group: str | None,
    report: Report,
    left_out: Container[str] = (),
    logs: LogFiles | None = None,
) -> History:
    """Read the history of `group`, or of all groups that are not in `left_out`. Raises the
    errors of `OffsetsReader`.
    """
    reader = OffsetsReader(cluster, group, left_out)
    ends = reader.ends()
    if logs is not None:
        logs.read_past(reader.watcher.logs, to_end=True)
    records = [*reader.read(ends, report), *reader.watcher.flush()]
    return History(records, reader.watcher.since_ms, reader.watcher.unread_count)
