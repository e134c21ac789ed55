"""Unsigned OAUTHBEARER tokens, for trying out clients on one machine.

Kafka's clients create them (`unsecuredLoginStringClaim_sub` in `sasl.jaas.config`), and so does
librdkafka (`enable.sasl.oauthbearer.unsecure.jwt`). They prove nothing: a client that reaches the
listener can be any user.
"""

import base64
import json
from collections.abc import Mapping
from typing import Final

from kohort.broker.core.security.exchange import Done, SaslFailure
from kohort.broker.core.security.oauthbearer import TokenRules, checked_subject
from kohort.broker.runtime.clock import Clock

_PARTS: Final = 3


class UnsecuredTokens:
    """Validates unsigned tokens, in place of `Tokens`."""

    def __init__(self, rules: TokenRules, clock: Clock) -> None:
        self._rules = rules
        self._clock = clock

    def check(self, token: str) -> Done:
        """Accept a token. Raises SaslFailure."""
        parts = token.split(".")
        if len(parts) != _PARTS or parts[2]:
            raise SaslFailure("not a token without a signature")
        header = _decoded(parts[0])
        if header.get("alg") != "none" or header.get("crit"):
            raise SaslFailure("the token's algorithm is not none")
        now_s = self._clock.wall_ms() / 1000
        subject, lifetime_ms = checked_subject(_decoded(parts[1]), self._rules, now_s)
        return Done(b"", subject, lifetime_ms)


def _decoded(part: str) -> Mapping[str, object]:
    """Decode a JSON object in URL-safe base64 without padding."""
    try:
        data = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise SaslFailure("a part of the token cannot be read") from None
    if not isinstance(found, dict):
        raise SaslFailure("a part of the token is not an object")
    return found
