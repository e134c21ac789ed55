"""OAUTHBEARER (RFC 7628): authentication by a signed token with the required claims.

This module has everything except the signature: the client's message, the claims, and the two
round trips of a rejection.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kohort.broker.core.security.sasl import SaslFailure

TOKEN_CHARACTERS_MAX: Final = 16 * 1024
REFUSAL: Final = b'{"status":"invalid_token"}'
"""The first response to a rejected client. The client replies with one byte, and SASL fails."""

_MESSAGE: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[\x21-\x2b\x2d-\x7e]*))?,\x01auth=(?P<scheme>[A-Za-z]+) "
    rb"(?P<token>[-_.A-Za-z0-9~+/=]+)(?P<extensions>(?:\x01[A-Za-z]+=[\x21-\x7e \t\r\n]*)*)\x01\x01"
)
_NUMBER_MAX: Final = 1 << 53
_TRIMMED: Final = "".join(map(chr, range(33)))
"""The characters that Java's `trim` removes."""


class Claimed(NamedTuple):
    """The contents of a client's first message."""

    authzid: str
    token: str

    def __repr__(self) -> str:
        return "Claimed()"


class TokenRules(NamedTuple):
    """The requirements on tokens, from a listener's settings."""

    audiences: tuple[str, ...]
    """Accepted audiences, of which a token must name one; empty for any."""
    issuer: str | None
    skew_s: int
    subject_claim: str


def read_message(data: bytes) -> Claimed:
    """Parse a client's first message. Raises SaslFailure."""
    match = _MESSAGE.fullmatch(data)
    if match is None or match["scheme"].lower() != b"bearer":
        raise SaslFailure("not an OAUTHBEARER message")
    if len(match["token"]) > TOKEN_CHARACTERS_MAX:
        raise SaslFailure("the token is too long")
    authzid = (match["authzid"] or b"").decode("ascii")
    return Claimed(authzid, match["token"].decode("ascii"))


def checked_subject(
    claims: Mapping[str, object], rules: TokenRules, now_s: float
) -> tuple[str, int]:
    """Return the name of the principal, and the remaining validity of the token in milliseconds.

    Raises SaslFailure.
    """
    expires_s, issued_s = _time(claims, "exp"), _time(claims, "iat")
    begins_s = _time(claims, "nbf") if "nbf" in claims else issued_s
    if now_s >= expires_s + rules.skew_s:
        raise SaslFailure("the token has expired")
    if issued_s > now_s + rules.skew_s or begins_s > now_s + rules.skew_s:
        raise SaslFailure("the token is not valid yet")
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        raise SaslFailure("the token is from another issuer")
    if rules.audiences and not set(rules.audiences) & set(_audiences(claims)):
        raise SaslFailure("the token is for another audience")
    given = claims.get(rules.subject_claim)
    # Trimmed as in Kafka, so that a space does not bypass denying rules or disabled users.
    subject = given.strip(_TRIMMED) if isinstance(given, str) else ""
    if not subject.strip() or not _is_text(subject):
        raise SaslFailure(f"the token has no {rules.subject_claim}")
    return subject, max(1, int((expires_s - now_s) * 1000))


def _is_text(value: str) -> bool:
    """Whether a text contains no lone surrogates, which JSON allows and UTF-8 does not."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _audiences(claims: Mapping[str, object]) -> list[str]:
    given = claims.get("aud")
    values = given if isinstance(given, list) else [given]
    return [value for value in values if isinstance(value, str)]


def _time(claims: Mapping[str, object], name: str) -> float:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SaslFailure(f"the token's {name} is missing or not a number")
    if not 0 <= value <= _NUMBER_MAX:
        raise SaslFailure(f"the token's {name} is not a valid time")
    return float(value)
