"""Types common to all SASL mechanisms: the three outcomes of a client's token."""

from typing import NamedTuple


class Challenge(NamedTuple):
    """A token for the client, which must reply with another one."""

    token: bytes


class Done(NamedTuple):
    """Success: the client is authenticated."""

    token: bytes
    user: str
    lifetime_ms: int | None = None
    """How long the client's credential is valid; None for no limit."""


class SaslFailure(Exception):  # noqa: N818 - the client's failure, not an error of the broker.
    """Authentication failed. The text is for the broker's log; `client_message` is for the client,
    None for the mechanism's general one.
    """

    def __init__(self, reason: str, client_message: str | None = None) -> None:
        super().__init__(reason)
        self.client_message = client_message
