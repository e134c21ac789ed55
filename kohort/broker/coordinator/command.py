"""The commands in a group's inbox, and the host interface of group actors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from kohort.broker.coordinator.offsets_log import OffsetsLog
from kohort.broker.core.timing_wheel import KeyedTimers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import RoundRobin
from kohort.groups.effects import TimerKey
from kohort.groups.events import Event
from kohort.groups.group import Group
from kohort.groups.requests import Now
from kohort.groups.steps import Steps
from kohort.protocol.errors import KafkaError

Step = Callable[[Group, Now], Steps[None] | None]


@dataclass(slots=True, eq=False)
class Command:
    """One operation on a group; commands are executed in the order of arrival."""

    step: Step
    """Executes the command. An exclusive command may return further steps, which are run in
    slices."""
    ticket: Deferred[Any] | None = None
    """Answered by the step, or by a later one."""
    answer_absent: object = None
    """The ticket's answer if the group does not exist when the command is executed."""
    creates_group: bool = False
    """Whether a group, without a membership, is created instead if there is none."""
    is_exclusive: bool = False
    """Executed in a batch of its own, with no append in progress."""
    is_gathered: bool = False
    """Executed together with the commands of the same loop iteration, which share one append."""
    shares_append: bool = False
    """Exclusive, except that several such commands in a row are executed before one append."""
    writes_group_record: bool = False
    """Will probably write a GroupRecord, and can wait briefly to share it with others."""


class ActorHost(Protocol):
    """Resources shared by all actors: clocks, the log, the purgatory, and observers."""

    inbox_max: int
    commit_timeout_ms: int
    log: OffsetsLog
    session_slices: RoundRobin
    answer_slices: RoundRobin

    def now(self) -> Now: ...

    def monotonic_ms(self) -> int: ...

    def new_timers(
        self, on_expired: Callable[[list[TimerKey], int], None], kind: str
    ) -> KeyedTimers[TimerKey]: ...

    def start_task(self, work: Any, name: str) -> None:  # noqa: ANN401 - a coroutine of anything.
        """Run a coroutine in a task that the host supervises."""
        ...

    def note_append_failure(self, group_id: str, error: KafkaError) -> None:
        """Log that an append for a group failed; rate-limited."""
        ...

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """Pass an event to the history and the metrics."""
        ...

    def remove(self, group: Group) -> None: ...

    def submit(self, group_id: str, command: Command) -> None: ...

    def reload(self, group_id: str) -> Group:
        """Restore the group of this id from the log; its effects are still to be taken."""
        ...
