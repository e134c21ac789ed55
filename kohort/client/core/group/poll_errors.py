"""The errors of a membership that only the application can resolve: its polls raise them."""

from kohort.client.core.errors import ConsumerError, InconsistentProtocolError, error_for
from kohort.protocol.errors import ErrorCode


class PollErrors:
    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.lasting: ConsumerError | None = None
        """The error that every poll raises until the application subscribes again; None if there is
        none.
        """
        self._refusal: ConsumerError | None = None
        """The error that the next poll raises; the poll after it retries."""
        self.is_due = False
        """Whether the next poll raises an error. An attribute, because every poll reads it."""

    def raise_next(self) -> None:
        """Raise the error that is due, if any; a refusal once, as it may be lifted."""
        if self.lasting is not None:
            raise self.lasting
        refusal, self._refusal, self.is_due = self._refusal, None, False
        if refusal is not None:
            raise refusal

    def fence(self, doing: str, code: ErrorCode) -> None:
        """Make every poll raise: another process uses the member's instance id."""
        self.lasting = error_for(code, f"{doing} in group {self._group_id}")
        self.is_due = True

    def refuse(self, doing: str, code: ErrorCode) -> None:
        """Make the next poll raise the error for a rejected request."""
        self.refuse_for(error_for(code, f"{doing} in group {self._group_id}"))

    def refuse_for(self, error: ConsumerError) -> None:
        """Make the next poll raise this error."""
        self._refusal = error
        self.is_due = True

    def refuse_protocol(self, name: str | None) -> None:
        """Make the next poll raise: the group uses a protocol that this member does not support."""
        self.refuse_for(
            InconsistentProtocolError(
                f"the group uses {name}, which this consumer does not support; compare"
                " partition_assignment_strategy of all members"
            )
        )

    def clear(self) -> None:
        """Forget all errors, because the application has subscribed again."""
        self.lasting = self._refusal = None
        self.is_due = False
