"""Facts about the assignments of a share group. Nobody stops for one, so nothing has a duration."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kohort.groups.events import Certainty, SharePartitionsAssigned, Trigger, TriggerKind
from kohort.groups.history.facts import Cause, Departure
from kohort.groups.history.limits import CAUSES_LISTED
from kohort.groups.requests import Now


class AssignedFacts(NamedTuple):
    """The facts about one assignment."""

    sequence: int
    previous_generation: int
    at: Now
    assigned: SharePartitionsAssigned
    causes: tuple[Cause, ...]
    causes_dropped: int
    departed: tuple[Departure, ...]
    """The members that are gone since the previous assignment."""


@dataclass(slots=True, eq=False)
class Bumps:
    """Why the epoch of a share group has increased since its last assignment."""

    causes: list[Cause] = field(default_factory=list)
    dropped: int = 0

    def add(self, trigger: Trigger, now: Now) -> None:
        if len(self.causes) <= CAUSES_LISTED:
            self.causes.append(Cause(trigger, now))
        else:
            self.dropped += 1

    def facts(
        self,
        event: SharePartitionsAssigned,
        now: Now,
        departed: Sequence[Departure],
        *,
        sequence: int,
        generation: int,
    ) -> AssignedFacts:
        """Return the facts about the assignment that follows; `generation` is the one before."""
        unknown = Cause(Trigger(TriggerKind.UNKNOWN, certainty=Certainty.UNCLEAR), now)
        causes = tuple(self.causes) or (unknown,)
        return AssignedFacts(
            sequence, generation, now, event, causes, self.dropped, tuple(departed)
        )
