"""Limits on what clients may use: for which entities, which limit applies, who is charged.

Defined by KIP-13, KIP-55, KIP-124, KIP-599 and KIP-612. An entity is a user, a client id, or both,
or else an address; each may be the default, which applies to all without a limit of their own. The
account that is charged is that of the real names: a default limits each of them, not all together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Final, NamedTuple

from kohort.broker.core.recently_used import RecentlyUsed
from kohort.broker.core.security.rate import WINDOW_MS, WINDOWS, Rate
from kohort.broker.core.security.token_bucket import TokenBucket

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
_OF_REQUESTS: Final = (REQUEST, PRODUCER, CONSUMER)
"""In the order of `Accounts`."""
KEYS: Final = frozenset({PRODUCER, CONSUMER, REQUEST, MUTATION})
"""Limits of clients: bytes a second, percent of the single thread, partitions created or removed a
second."""
CONNECTION: Final = "connection_creation_rate"
KEYS_OF_IP: Final = frozenset({CONNECTION})
"""Limits of addresses: new connections a second."""
_WHOLE_MAX: Final = {PRODUCER: 2**63 - 1, CONSUMER: 2**63 - 1, CONNECTION: 2**31 - 1}
"""Limits that are whole numbers, and the largest value of each."""

ACCOUNTS_MAX: Final = 100_000
"""Bound on accounts; beyond it the one used longest ago is dropped."""

HOLDING_MAX: Final = 10_000
"""Bound on the clients whose limit is cached; beyond it the whole cache is dropped."""

MICROSECONDS_OF_A_PERCENT: Final = 10_000
"""The time in each second that one percent stands for."""


class QuotaError(Exception):
    """An invalid limit or entity; the text is for the client that asked for it."""


class Default:
    """The name of the default, for all without a limit of their own. There is one instance."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<default>"


DEFAULT: Final = Default()
Name = str | Default | None
"""The name of a part of an entity; None if the entity has no such part."""


class Entity(NamedTuple):
    """The entity that a limit belongs to."""

    user: Name = None
    client_id: Name = None
    ip: Name = None

    @property
    def keys(self) -> frozenset[str]:
        """The limits that such an entity can have."""
        return KEYS if self.ip is None else KEYS_OF_IP

    def parts(self) -> Iterator[tuple[str, str | None]]:
        """Yield (type, name) as in the protocol, with None for the default."""
        for kind, name in ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip)):
            if name is not None:
                yield kind, name if isinstance(name, str) else None


def entity_of(parts: list[tuple[str, str | None]]) -> Entity:
    """The entity of these types and names. Raises QuotaError."""
    names: dict[str, Name] = {}
    for kind, name in parts:
        if kind not in {USER, CLIENT_ID, IP}:
            raise QuotaError(f"Unhandled client quota entity type: {kind}")
        if kind in names:
            raise QuotaError(f"Entity type '{kind}' is named twice.")
        if name == "":
            raise QuotaError(f"Empty {kind} not supported")
        names[kind] = DEFAULT if name is None else name
    if not names:
        raise QuotaError("Invalid empty client quota entity")
    if IP in names:
        if len(names) > 1:
            raise QuotaError("Invalid quota entity combination")
        _check_address(names[IP])
    return Entity(names.get(USER), names.get(CLIENT_ID), names.get(IP))


def _check_address(name: Name) -> None:
    """Raise QuotaError for a text that is not a numeric address; names are not resolved."""
    if not isinstance(name, str):
        return
    try:
        is_plain = str(ip_address(name)) == name
    except ValueError:
        is_plain = False
    if not is_plain:
        raise QuotaError(f"{name} is not a valid IP")


def check_limit(entity: Entity, key: str, value: float) -> None:
    """Raise QuotaError for an invalid limit."""
    if key not in entity.keys:
        raise QuotaError(f"Invalid configuration key {key}")
    if not math.isfinite(value) or value <= 0:
        raise QuotaError(f"Quota {key} must be greater than 0")
    most = _WHOLE_MAX.get(key)
    if most is not None and (value != math.floor(value) or value > most):
        raise QuotaError(f"Configuration {key} must be a whole number of at most {most}")


class Account:
    """A limit that applies to a client, and what has been used of it."""

    __slots__ = ("_a_second", "_longest_ms", "_rate", "at_once", "limit", "names")

    def __init__(self, limit: float, names: tuple[str, str], rate: Rate, *, is_time: bool) -> None:
        """`names` are the user and client id that share the account, "" for any."""
        self.limit = limit
        self.names = names
        self.at_once = int(limit * rate.least_ms / 1_000)
        """The most for one answer: what the limit allows in all windows but one."""
        self._rate = rate
        self._a_second = limit * MICROSECONDS_OF_A_PERCENT if is_time else limit
        self._longest_ms = rate.window_ms if is_time else None

    def charge(self, amount: int, now_ms: int) -> int:
        """Record a use: bytes, or microseconds of time. Returns the milliseconds for which the
        client has to be throttled, 0 if it is within its limit.
        """
        throttle_ms = self._rate.use(amount, self._a_second, now_ms)
        if throttle_ms and self._longest_ms is not None:
            return min(throttle_ms, self._longest_ms)
        return throttle_ms


class Accounts(NamedTuple):
    """What a client is charged on; None where it has no limit."""

    request: Account | None
    producer: Account | None
    consumer: Account | None


class Quotas:
    """All limits, and what has been used of them."""

    def __init__(
        self,
        windows: int = WINDOWS,
        window_ms: int = WINDOW_MS,
        mutation_windows: int = WINDOWS,
        mutation_window_ms: int = WINDOW_MS,
    ) -> None:
        self.limits: dict[Entity, dict[str, float]] = {}
        self._rates: RecentlyUsed[tuple[str, str, str], Rate] = RecentlyUsed(
            partial(self._new_rate, windows, window_ms), ACCOUNTS_MAX
        )
        """Rates by key, user and client id."""
        self._buckets: RecentlyUsed[tuple[str, str], TokenBucket] = RecentlyUsed(
            lambda: TokenBucket(mutation_windows, mutation_window_ms), ACCOUNTS_MAX
        )
        self._accounts: dict[tuple[str, str, str], Account | None] = {}
        """Cache of the accounts of clients; dropped after a change of limits, and when a rate is
        added, because another rate may have been dropped for it.
        """
        self._of_clients: dict[tuple[str, str], Accounts] = {}
        """The same for all that requests of a client use."""

    def set(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace the limits of an entity; an empty mapping removes it."""
        if limits:
            self.limits[entity] = dict(limits)
        else:
            self.limits.pop(entity, None)
        self._forget()

    def accounts(self, user: str, client_id: str) -> Accounts:
        """The accounts of a client for all that its requests use."""
        try:
            return self._of_clients[user, client_id]
        except KeyError:
            found = Accounts(*(self.account(key, user, client_id) for key in _OF_REQUESTS))
            if len(self._of_clients) >= HOLDING_MAX:
                self._of_clients = {}
            self._of_clients[user, client_id] = found
            return found

    def account(self, key: str, user: str, client_id: str) -> Account | None:
        """The account of a client for bytes or time; None if it has no limit."""
        asked = key, user, client_id
        try:
            return self._accounts[asked]
        except KeyError:
            found = self._found(key, user, client_id)
            if len(self._accounts) >= HOLDING_MAX:
                self._accounts = {}
            self._accounts[asked] = found
            return found

    def _found(self, key: str, user: str, client_id: str) -> Account | None:
        first = self._first(key, user, client_id)
        if first is None:
            return None
        limit, names = first
        return Account(limit, names, self._rates[key, *names], is_time=key == REQUEST)

    def _new_rate(self, windows: int, window_ms: int) -> Rate:
        self._forget()
        return Rate(windows, window_ms)

    def _forget(self) -> None:
        self._accounts = {}
        self._of_clients = {}

    def _first(self, key: str, user: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
        """The limit that applies to a client, and the names of its account."""
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
        """Charge the account of a client, if it has one; see `Account.charge`."""
        account = self.account(key, user, client_id)
        return 0 if account is None else account.charge(amount, now_ms)

    def take_mutations(self, user: str, client_id: str, amount: int, now_ms: int) -> int:
        """Record that so many partitions are created or removed. Returns the milliseconds until the
        debt is earned, 0 without a debt or a limit; an amount of 0 only reads it.
        """
        first = self._first(MUTATION, user, client_id)
        if first is None:
            return 0
        limit, names = first
        bucket = self._buckets[names]
        bucket.take(amount, limit, now_ms)
        return bucket.debt_ms(limit, now_ms)

    def connection_limit(self, ip: str) -> float | None:
        """The limit of new connections a second from an address; None without a limit."""
        for entity in (Entity(ip=ip), Entity(ip=DEFAULT)):
            found = self.limits.get(entity, {}).get(CONNECTION)
            if found is not None:
                return found
        return None
