"""What the steps of a group ask of the shell: effects, and records to be written down.

A step changes what is passing at once. What must be durable first is *staged* as a `Write`: its
records go into one append with those of the other writes of the step, and it is told the outcome.
"""

from typing import Protocol

from kohort.broker.core.group.effects import Append, Effect, Note, Reply
from kohort.broker.core.group.events import Event, OffsetsStored
from kohort.broker.core.group.records import DurableRecord
from kohort.broker.core.group.requests import Now, Ticket
from kohort.protocol.errors import ErrorCode


class Write(Protocol):
    """Records on their way to the log, and what follows."""

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Called once, right before the append; nothing to write drops the write, which then has
        answered its ticket.
        """
        ...

    def on_durable(self, now: Now) -> None:
        """The records are in the log."""
        ...

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """They are not, and never will be. `error` is for the client."""
        ...

    def answer_early(self, error: ErrorCode) -> None:
        """Answer the ticket of this write `error`, while its outcome is still open: it may yet come
        into force, as if the answer had been lost.
        """
        ...


class Outbox:
    """The requests of one group to its shell; one append is under way at a time."""

    __slots__ = ("_alone", "_effects", "_singly", "_staged", "_stored_count", "in_flight")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._stored_count = 0
        """Positions that became durable since effects were last taken."""
        self._staged: list[Write] = []
        self._alone: set[Write] = set()
        """Writes among them whose records are a batch of their own."""
        self._singly = 0
        """So many of those that are staged, the first, get an append of their own."""
        self.in_flight: list[Write] = []
        """Writes whose outcome is awaited."""

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def reply(self, ticket: Ticket, body: object) -> None:
        self._effects.append(Reply(ticket, body))

    def note(self, event: Event) -> None:
        self._effects.append(Note(event))

    def note_stored(self, offset_count: int) -> None:
        """Positions became durable: told once for all commits that shared an append."""
        self._stored_count += offset_count

    def stage(self, write: Write) -> None:
        """Have the records appended with those of the other writes of this step."""
        assert not self.in_flight, "stepped while an append is under way"
        self._staged.append(write)

    def stage_alone(self, write: Write) -> None:
        """Have the records appended as a batch of their own, in the order of all writes."""
        self.stage(write)
        self._alone.add(write)

    @property
    def has_effects(self) -> bool:
        """Is there something to collect?"""
        return self.has_ready_effects or bool(self._staged)

    @property
    def has_ready_effects(self) -> bool:
        """Is there something to take that needs no append?"""
        return bool(self._effects or self._stored_count)

    @property
    def is_writing(self) -> bool:
        """Is the outcome of an append awaited?"""
        return bool(self.in_flight or self._staged)

    @property
    def unfinished(self) -> list[Write]:
        """Writes whose outcome is open: in the append under way, or staged for a later one."""
        return self.in_flight + self._staged

    def take_ready_effects(self) -> list[Effect]:
        """What needs no append. Staged writes stay where they are, so this may be called while an
        append is under way.
        """
        effects, self._effects = self._effects, []
        if self._stored_count:
            effects.append(Note(OffsetsStored(self._stored_count)))
            self._stored_count = 0
        return effects

    def collect(self) -> list[Effect]:
        """What the steps since the last call ask for; the Append, if any, comes last. Not to be
        called while an append is under way: writes may be staged for the next one.
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
                # A write may have become pointless by a later event of the same step, and may ask
                # for something else instead.
                if made:
                    self.in_flight.append(write)
                    records += made
        effects += self._effects
        self._effects = []
        if records:
            effects.append(Append(tuple(records)))
        return effects

    def append_singly(self) -> bool:
        """Something in the records cannot be stored: have each write of the append tried for
        itself, so that only the one that is to blame fails. False if there was one only.
        """
        if len(self.in_flight) < 2:
            return False
        self._singly = len(self.in_flight)
        self._staged = self.finish_append() + self._staged
        return True

    def finish_append(self) -> list[Write]:
        """Take the writes whose outcome is known now."""
        writes, self.in_flight = self.in_flight, []
        return writes
