"""The effects of a group's steps, and the records to append.

A step changes volatile state immediately. A change that must be durable first is *staged* as a
`Write`: its records share one append with the step's other writes, and each write gets the append's
result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kohort.groups.effects import Append, Effect, Note, Reply
from kohort.groups.events import Event, OffsetsStored
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Now, Ticket
from kohort.protocol.errors import ErrorCode


class Write(Protocol):
    """Records to append, and the change that they make when they are durable."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Return the records; called right before each attempt to append them. A write that returns
        none has already answered its request, and is dropped.
        """
        ...

    def on_durable(self, now: Now) -> None:
        """Make the change: the records are in the log."""
        ...

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Discard the change: the records will never be in the log. `error` is for the client."""
        ...

    def answer_early(self, error: ErrorCode) -> None:
        """Answer the request with `error` while the append's result is unknown: the write may yet
        take effect, as if the response had been lost.
        """
        ...


@dataclass(slots=True, eq=False)
class Answers:
    """The request that caused a write, and its responses for success and for failure."""

    ticket: Ticket
    success: object
    failure: Callable[[ErrorCode], object]

    def give(self, outbox: "Outbox", error: ErrorCode) -> None:
        """Answer with `success` if `error` is NONE, otherwise with `failure(error)`."""
        outbox.reply(self.ticket, self.failure(error) if error else self.success)


class Outbox:
    """The effects and writes of one group; one append is in progress at a time."""

    __slots__ = (
        "_alone",
        "_effects",
        "_is_paced",
        "_singly",
        "_staged",
        "_stored_count",
        "in_flight",
        "shared",
    )

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._stored_count = 0
        """Offsets that became durable since effects were last taken."""
        self._staged: list[Write] = []
        self._alone: set[Write] = set()
        """The staged writes whose records form a batch of their own."""
        self._is_paced = False
        self._singly = 0
        """Number of staged writes, from the front, that each get an append of their own."""
        self.in_flight: list[Write] = []
        self.shared: Write | None = None
        """A write that the next commands may add their changes to; not staged yet."""

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def reply(self, ticket: Ticket, body: object) -> None:
        self._effects.append(Reply(ticket, body))

    def note(self, event: Event) -> None:
        self._effects.append(Note(event))

    def note_stored(self, offset_count: int) -> None:
        """Count offsets that became durable; one event reports all commits of an append."""
        self._stored_count += offset_count

    def stage(self, write: Write) -> None:
        """Append the records together with those of the step's other writes."""
        assert not self.in_flight, "stepped while an append is in progress"
        self._staged.append(write)

    def stage_alone(self, write: Write) -> None:
        """Like `stage`, but the records form a batch of their own; the order of writes is kept."""
        self.stage(write)
        self._alone.add(write)

    def stage_shared(self) -> None:
        """Stage the write in `shared`, if any, so that no more commands add changes to it."""
        write, self.shared = self.shared, None
        if write is not None:
            self.stage(write)

    def pace(self) -> None:
        """Request a pause after the next append (`Append.is_paced`); called by `make_records`."""
        self._is_paced = True

    @property
    def has_effects(self) -> bool:
        return self.has_ready_effects or bool(self._staged)

    @property
    def has_ready_effects(self) -> bool:
        """Whether there are effects that need no append."""
        return bool(self._effects or self._stored_count)

    @property
    def is_writing(self) -> bool:
        return bool(self.in_flight or self._staged)

    @property
    def unfinished(self) -> list[Write]:
        """Writes whose result is unknown: in the append in progress, or staged for a later one."""
        return self.in_flight + self._staged

    def take_ready_effects(self) -> list[Effect]:
        """Return the effects that need no append, also while an append is in progress."""
        effects, self._effects = self._effects, []
        if self._stored_count:
            effects.append(Note(OffsetsStored(self._stored_count)))
            self._stored_count = 0
        return effects

    def collect(self) -> list[Effect]:
        """Return the effects of the steps since the last call; the Append, if any, comes last. Not
        to be called while an append is in progress: this call may begin the next.
        """
        effects, self._effects = self._effects, []
        if self._stored_count:
            effects.append(Note(OffsetsStored(self._stored_count)))
            self._stored_count = 0
        records: list[DurableRecord] = []
        while (staged := self._staged) and not records:
            assert not self.in_flight
            count = 1
            if self._singly:
                self._singly -= 1
            elif staged[0] not in self._alone:
                while count < len(staged) and staged[count] not in self._alone:
                    count += 1
            self._staged = staged[count:]
            for write in staged[:count]:
                self._alone.discard(write)
                made = write.make_records()
                # A later event of the same step may have made the write pointless, and the write
                # may emit other effects instead.
                if made:
                    self.in_flight.append(write)
                    records += made
        effects += self._effects
        self._effects = []
        if records:
            effects.append(Append(tuple(records), self._is_paced))
            self._is_paced = False
        return effects

    def append_singly(self) -> bool:
        """Retry the writes of a failed append one by one; False if the append had only one."""
        if len(self.in_flight) < 2:
            return False
        self._singly = len(self.in_flight)
        self._staged = self.finish_append() + self._staged
        return True

    def finish_append(self) -> list[Write]:
        """Record that the append in progress has ended; return its writes."""
        writes, self.in_flight = self.in_flight, []
        return writes
