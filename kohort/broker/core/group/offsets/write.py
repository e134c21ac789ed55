"""What commits have in common, in a transaction or not: they are answered once."""

from dataclasses import dataclass

from kohort.broker.core.group.offsets.owner import OffsetsOwner
from kohort.broker.core.group.requests import CommitResult, Now, Ticket
from kohort.protocol.errors import ErrorCode


@dataclass(slots=True, eq=False)
class CommitWrite:
    """Records of a commit on their way into the log; the subclasses say which."""

    owner: OffsetsOwner
    ticket: Ticket | None
    """Ticket of the commit; None once answered."""
    result: CommitResult
    """The answer when the records are durable."""

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Nothing has changed."""
        del now
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        """Positions that were refused for themselves keep their own error."""
        errors = (own or error for own in self.result.errors)
        self.answer(CommitResult(tuple(errors)))

    def answer(self, result: CommitResult) -> None:
        """Reply, unless that was done already."""
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.owner.outbox.reply(ticket, result)
