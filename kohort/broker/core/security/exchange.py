"""What all SASL mechanisms have in common: tokens in, and one of three outcomes."""

from typing import NamedTuple


class Challenge(NamedTuple):
    """A token for the client, which has to say more."""

    token: bytes


class Done(NamedTuple):
    """The client is who it says."""

    token: bytes
    user: str
    lifetime_ms: int | None = None
    """For how long its credential is good; None for ever."""


class SaslFailure(Exception):  # noqa: N818 - the client's failure, not an error of ours.
    """The client is not let in. Its text is for our log; `told` is for the client, None for the
    words that all failures of a mechanism share.
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = told
