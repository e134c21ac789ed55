"""What is put into a group's inbox, and what the group's actor asks of its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from kohort.broker.coordinator.log.offsets_log import OffsetsLog
from kohort.broker.core.group.effects import TimerKey
from kohort.broker.core.group.events import Event
from kohort.broker.core.group.group import Group
from kohort.broker.core.group.requests import Now
from kohort.broker.core.keyed_timers import KeyedTimers
from kohort.broker.core.steps import Steps
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.slices import RoundRobin

Step = Callable[[Group, Now], Steps[None] | None]


def _nothing() -> None:
    """The answer of a command that nothing waits for."""


class Command(NamedTuple):
    """One thing to do to a group, in the order in which commands come."""

    step: Step
    """Does it. An exclusive command may return further steps, to be taken a slice in each iteration
    of the loop.
    """
    ticket: Later[Any] | None = None
    """Answered by the step, or by a later one."""
    answer_absent: Callable[[], object] = _nothing
    """Makes the ticket's answer, if there is no such group when the command would be stepped."""
    creates_group: bool = False
    """Makes the group instead, if there is none."""
    is_exclusive: bool = False
    """Is stepped in a batch of its own, with nothing else on its way to the log."""
    is_gathered: bool = False
    """Is stepped with those that come in the same iteration of the loop; they share one append."""
    writes_group_record: bool = False
    """Will probably write a GroupRecord, and can wait a little so that others share it."""


class ActorHost(Protocol):
    """What actors share: time, the log, the purgatory, and who watches."""

    inbox_max: int
    commit_timeout_ms: int
    log: OffsetsLog
    session_turns: RoundRobin
    answer_turns: RoundRobin

    def now(self) -> Now: ...

    def monotonic_ms(self) -> int: ...

    def new_timers(
        self, on_expired: Callable[[list[TimerKey], int], None], kind: str
    ) -> KeyedTimers[TimerKey]: ...

    def start_task(self, work: Any, name: str) -> None:  # noqa: ANN401 - a coroutine of anything.
        """Run it under the host's eyes."""
        ...

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """For the history and the metrics."""
        ...

    def remove(self, group: Group) -> None:
        """The group is gone."""
        ...

    def submit(self, group_id: str, command: Command) -> None:
        """To whatever group has this id now."""
        ...

    def reload(self, group_id: str) -> Group:
        """A new group of this id, restored from the log; its effects are still to be taken."""
        ...
