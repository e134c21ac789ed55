"""Types common to all SASL mechanisms: a token comes in, and has one of three outcomes."""

from typing import NamedTuple


class Challenge(NamedTuple):
    """A token for the client, which has to send another."""

    token: bytes


class Done(NamedTuple):
    """Success: the client is who it claims to be."""

    token: bytes
    user: str
    lifetime_ms: int | None = None
    """How long its credential is valid; None for no limit."""


class SaslFailure(Exception):  # noqa: N818 - the client's failure, not an error of the broker.
    """The client is not let in. The text is for the broker's log; `told` is for the client, None
    for the message that all failures of a mechanism share.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told
