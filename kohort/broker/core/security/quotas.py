"""Limits on what clients may use: for whom they are, which one holds, who is charged.

Defined by KIP-13, KIP-55 and KIP-124. An entity is a user, a client id, or both; either may be the
default, which holds for all who have none of their own. The account that is charged is that of the
real names: a default limits each of them and not all together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kohort.broker.core.security.rate import WINDOW_MS, WINDOWS, Rate

USER: Final = "user"
CLIENT_ID: Final = "client-id"

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
KEYS: Final = frozenset({PRODUCER, CONSUMER, REQUEST})
"""Limits that are kept to: bytes a second, or percent of the one thread."""
_WHOLE: Final = frozenset({PRODUCER, CONSUMER})
_WHOLE_MAX: Final = 2**63 - 1

ACCOUNTS_MAX: Final = 100_000
"""Accounts that are kept; of more the one that was used longest ago goes."""

HOLDING_MAX: Final = 10_000
"""Clients of whom it is remembered which limit holds; of more all are forgotten."""

MICROSECONDS_OF_A_PERCENT: Final = 10_000
"""Time of each second."""


class QuotaError(Exception):
    """A limit or an entity that cannot be; the text is for who asked for it."""


class Default:
    """The name of what holds for all without one of their own. There is one instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<default>"


DEFAULT: Final = Default()
Name = str | Default | None
"""Absent (None) where the entity has no such part."""


class Entity(NamedTuple):
    """For whom a limit is."""

    user: Name = None
    client_id: Name = None

    def parts(self) -> Iterator[tuple[str, str | None]]:
        """(Type, name), None for the default, as the protocol has them."""
        for kind, name in ((USER, self.user), (CLIENT_ID, self.client_id)):
            if name is not None:
                yield kind, name if isinstance(name, str) else None


def entity_of(parts: list[tuple[str, str | None]]) -> Entity:
    """The entity of these types and names. Raises QuotaError."""
    names: dict[str, Name] = {}
    for kind, name in parts:
        if kind not in {USER, CLIENT_ID}:
            raise QuotaError(f"Limits of entity type '{kind}' cannot be kept here.")
        if kind in names:
            raise QuotaError(f"Entity type '{kind}' is named twice.")
        if name == "":
            raise QuotaError(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise QuotaError("Invalid empty client quota entity")
    return Entity(names.get(USER), names.get(CLIENT_ID))


def check_limit(key: str, value: float) -> None:
    """Raise QuotaError for a limit that cannot be."""
    if key not in KEYS:
        raise QuotaError(f"Invalid configuration key {key}")
    if not math.isfinite(value) or value <= 0:
        raise QuotaError(f"Quota {key} must be greater than 0")
    if key in _WHOLE and (value != math.floor(value) or value > _WHOLE_MAX):
        raise QuotaError(f"Configuration {key} must be a whole number of at most 64 bits")


_Holding = tuple[float, tuple[str, str]]
"""A limit, and the names of the account that is charged."""


class Quotas:
    """All limits, and what has been used of them."""

    def __init__(self, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self.limits: dict[Entity, dict[str, float]] = {}
        self._accounts: dict[tuple[str, str, str], Rate] = {}
        self._holding: dict[tuple[str, str, str], _Holding | None] = {}

    def set(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace the limits of an entity; none at all forgets it."""
        if limits:
            self.limits[entity] = dict(limits)
        else:
            self.limits.pop(entity, None)
        self._holding = {}

    def limit(self, key: str, user: str, client_id: str) -> _Holding | None:
        """The limit that holds for a client, and the names of the account; None without one."""
        asked = key, user, client_id
        try:
            return self._holding[asked]
        except KeyError:
            if len(self._holding) >= HOLDING_MAX:
                self._holding = {}
            found = self._holding[asked] = self._first(key, user, client_id)
            return found

    def _first(self, key: str, user: str, client_id: str) -> _Holding | None:
        limits = self.limits
        for entity, account in (
            (Entity(user, client_id), (user, client_id)),
            (Entity(user, DEFAULT), (user, client_id)),
            (Entity(user), (user, "")),
            (Entity(DEFAULT, client_id), (user, client_id)),
            (Entity(DEFAULT, DEFAULT), (user, client_id)),
            (Entity(DEFAULT), (user, "")),
            (Entity(None, client_id), ("", client_id)),
            (Entity(None, DEFAULT), ("", client_id)),
        ):
            found = limits.get(entity)
            if found is not None and key in found:
                return found[key], account
        return None

    def charge(self, key: str, user: str, client_id: str, amount: int, now_ms: int) -> int:
        """Note what a client has used: bytes, or microseconds of time. Milliseconds for which it is
        to be held back, 0 if it has kept within its limit.
        """
        holding = self.limit(key, user, client_id)
        if holding is None:
            return 0
        limit, account = holding
        rate = self._account(key, account)
        rate.record(amount, now_ms)
        if key == REQUEST:
            throttle_ms = rate.throttle_ms(limit * MICROSECONDS_OF_A_PERCENT, now_ms)
            return min(throttle_ms, self._window_ms)
        return rate.throttle_ms(limit, now_ms)

    def bytes_at_once(self, key: str, user: str, client_id: str) -> int | None:
        """The most that one answer may have: what the limit allows in all windows but one."""
        holding = self.limit(key, user, client_id)
        if holding is None:
            return None
        return int(holding[0] * (self._windows - 1) * self._window_ms / 1_000)

    def _account(self, key: str, account: tuple[str, str]) -> Rate:
        name = (key, *account)
        rate = self._accounts.pop(name, None)
        if rate is None:
            rate = Rate(self._windows, self._window_ms)
            if len(self._accounts) >= ACCOUNTS_MAX:
                del self._accounts[next(iter(self._accounts))]
        # The last in the dict is the one that was used last.
        self._accounts[name] = rate
        return rate
