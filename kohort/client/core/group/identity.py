"""The identity of this consumer in its group, at one moment.

Requests remember the identity that they were sent with. An answer that says that it is not valid
any more counts only if the consumer has not got another one meanwhile.
"""

from typing import NamedTuple

UNKNOWN_GENERATION = -1


class Identity(NamedTuple):
    """A member in a generation, or `NOBODY`."""

    generation: int = UNKNOWN_GENERATION
    member_id: str = ""
    protocol_name: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the coordinator knew this member when it was last heard of."""
        return self.generation != UNKNOWN_GENERATION and bool(self.member_id)

    def without_generation(self) -> "Identity":
        """To join again as the same member."""
        return Identity(member_id=self.member_id)


NOBODY = Identity()
