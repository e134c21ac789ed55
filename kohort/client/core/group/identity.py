"""The identity of a consumer in its group at one moment.

Each request remembers the identity that it was sent with. A response that invalidates this identity
counts only if the consumer has not got another one meanwhile.
"""

from typing import NamedTuple

UNKNOWN_GENERATION = -1


class Identity(NamedTuple):
    """A member id and generation, or `NO_MEMBER`."""

    generation: int = UNKNOWN_GENERATION
    member_id: str = ""
    protocol_name: str | None = None

    @property
    def is_valid(self) -> bool:
        """Whether the coordinator recognised this member in its latest response."""
        return self.generation != UNKNOWN_GENERATION and bool(self.member_id)

    def without_generation(self) -> "Identity":
        """Return the identity for rejoining as the same member."""
        return Identity(member_id=self.member_id)


NO_MEMBER = Identity()
