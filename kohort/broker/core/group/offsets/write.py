"""The common part of commits, transactional or not: they are answered once."""

from dataclasses import dataclass

from kohort.broker.core.group.offsets.owner import OffsetsOwner
from kohort.broker.core.group.requests import CommitResult, Now, Ticket
from kohort.protocol.errors import ErrorCode


@dataclass(slots=True, eq=False)
class CommitWrite:
    """Records of a commit to be appended; subclasses define them."""

    owner: OffsetsOwner
    ticket: Ticket | None
    """Ticket of the commit; None once answered."""
    result: CommitResult
    """The answer when the records are durable."""

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Answer with the error; nothing has changed."""
        del now
        self.answer_early(error)

    def answer_early(self, error: ErrorCode) -> None:
        """Answer with the error; offsets that were refused individually keep their own."""
        errors = (own or error for own in self.result.errors)
        self.answer(CommitResult(tuple(errors)))

    def answer(self, result: CommitResult) -> None:
        """Reply, unless that was done already."""
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            self.owner.outbox.reply(ticket, result)
