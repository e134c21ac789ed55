"""Limits on what clients may use: for which entities, which limit applies, who is charged.

Defined by KIP-13, KIP-55, KIP-124, KIP-599 and KIP-612. An entity is a user, a client id, or both,
or else an address; each may be the default, which applies to all without a limit of their own. The
account that is charged is that of the real names: a default limits each of them, not all together.
"""

from __future__ import annotations

import hashlib
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
"""Limits of requests, in the order of `Accounts`."""
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

CLIENT_ID_LENGTH_MAX: Final = 255
"""Longer client ids are kept as digests: a client may send another of 32 KB with each request."""

MICROSECONDS_OF_A_PERCENT: Final = 10_000
"""The time in each second that one percent stands for."""

_NOT_BEGUN: Final = -1
"""The time of no sample: before all times."""
_BUDGET_MAX: Final = 1e30
"""Bound on a budget: a limit for time has no largest value, and infinity is not a whole number."""


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
        plain = str(ip_address(name))
    except ValueError:
        raise QuotaError(f"{name} is not a valid IP") from None
    if plain != name:
        raise QuotaError(f"{name} is not a valid IP as connections have it: {plain}")


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
    """A limit that applies to a client, and what has been used of it.

    As long as what was used would be within the limit in the shortest time that a rate is measured
    over, a use is subtracted from what is left, and nothing else is computed. `Rate` is told when
    its sample turns, or when nothing is left; only then is there anything to wait for.
    """

    __slots__ = (
        "_a_second", "_budget", "_left_before", "_longest_ms", "_rate", "at_once", "last_ms",
        "left", "limit", "sample_end_ms",
    )  # fmt: skip

    def __init__(self, rate: Rate) -> None:
        """Begin without a limit: `limit_to` has to be called before anything is charged."""
        self.limit = 0.0
        self.at_once = 0
        """The most for one answer: what the limit allows in all windows but one."""
        self._rate = rate
        self._a_second = 0.0
        self._longest_ms: int | None = None
        self._budget = 0
        """The most that may have been used, whenever that was."""
        self.sample_end_ms = _NOT_BEGUN
        """The time from which a use is not of the same sample."""
        self.left = self._left_before = 0
        """What is left of the budget, now and when the rate was last told."""
        self.last_ms = 0
        """The time of the last use."""

    def limit_to(self, limit: float, *, is_time: bool) -> None:
        """Set the limit; what has been used before counts."""
        if limit == self.limit:
            return
        self._tell()
        self.limit = limit
        self._a_second = limit * MICROSECONDS_OF_A_PERCENT if is_time else limit
        self._longest_ms = self._rate.window_ms if is_time else None
        least_ms = self._rate.least_ms
        self.at_once = int(limit * least_ms / 1_000)
        # Rounded down, and beyond some limits less than they are: what exceeds it is computed.
        self._budget = int(min(self._a_second * least_ms, _BUDGET_MAX)) // 1_000
        self.sample_end_ms = _NOT_BEGUN

    def charge(self, amount: int, now_ms: int) -> int:
        """Record a use: bytes, or microseconds of time. Returns the milliseconds for which the
        client has to be throttled, 0 if it is within its limit. A negative amount takes back the
        last use.
        """
        left = self.left - amount
        if left >= 0 and now_ms < self.sample_end_ms:
            self.left = left
            self.last_ms = now_ms
            return 0
        return self._charge_to_rate(amount, now_ms)

    def _charge_to_rate(self, amount: int, now_ms: int) -> int:
        self._tell()
        rate = self._rate
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(self._a_second, now_ms)
        self.sample_end_ms = rate.sample_end_ms
        self.left = self._left_before = self._budget - rate.total
        self.last_ms = now_ms
        if throttle_ms and self._longest_ms is not None:
            return min(throttle_ms, self._longest_ms)
        return throttle_ms

    def _tell(self) -> None:
        """Let the rate know what it has not been told of."""
        if self.sample_end_ms != _NOT_BEGUN:
            self._rate.record(self._left_before - self.left, self.last_ms)
            self._left_before = self.left


class Accounts:
    """What a client is charged on; None where it has no limit."""

    __slots__ = ("client_id", "consumer", "is_current", "producer", "request")

    def __init__(
        self,
        client_id: str,
        request: Account | None,
        producer: Account | None,
        consumer: Account | None,
    ) -> None:
        self.client_id = client_id
        self.request = request
        self.producer = producer
        self.consumer = consumer
        self.is_current = True
        """False once limits have changed, or for another reason they are to be looked up again."""


NO_ACCOUNTS: Final = Accounts("", None, None, None)
"""The accounts of a client that has not been looked up."""
NO_ACCOUNTS.is_current = False


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
        self._used: RecentlyUsed[tuple[str, str, str], Account] = RecentlyUsed(
            partial(self._new_account, windows, window_ms), ACCOUNTS_MAX
        )
        """Accounts by key, and by the user and client id that share one, "" for any."""
        self._buckets: RecentlyUsed[tuple[str, str], TokenBucket] = RecentlyUsed(
            lambda: TokenBucket(mutation_windows, mutation_window_ms), ACCOUNTS_MAX
        )
        self._of_clients: dict[tuple[str, str], Accounts] = {}
        """Cache of the accounts of clients; dropped after a change of limits, and when an account
        is added, because another may have been dropped for it.
        """

    def set(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace the limits of an entity; an empty mapping removes it."""
        if limits:
            self.limits[entity] = dict(limits)
        else:
            self.limits.pop(entity, None)
        self._forget()

    def accounts(self, user: str, client_id: str) -> Accounts:
        """The accounts of a client for all that its requests use. May be kept as long as they are
        current.
        """
        kept = _kept(client_id)
        try:
            return self._of_clients[user, kept]
        except KeyError:
            found = [self.account(key, user, client_id) for key in _OF_REQUESTS]
            if len(self._of_clients) >= HOLDING_MAX:
                self._forget()
            accounts = self._of_clients[user, kept] = Accounts(kept, *found)
            return accounts

    def account(self, key: str, user: str, client_id: str) -> Account | None:
        """The account of a client for bytes or time; None if it has no limit."""
        first = self._first(key, user, client_id)
        if first is None:
            return None
        limit, names = first
        account = self._used[key, *names]
        account.limit_to(limit, is_time=key == REQUEST)
        return account

    def _new_account(self, windows: int, window_ms: int) -> Account:
        self._forget()
        return Account(Rate(windows, window_ms))

    def _forget(self) -> None:
        of_clients, self._of_clients = self._of_clients, {}
        for accounts in of_clients.values():
            accounts.is_current = False

    def _first(self, key: str, user: str, client_id: str) -> tuple[float, tuple[str, str]] | None:
        """The limit that applies to a client, and the names of its account."""
        limits = self.limits
        kept = _kept(client_id)
        for entity, account in (
            (Entity(user, client_id), (user, kept)),
            (Entity(user, DEFAULT), (user, kept)),
            (Entity(user), (user, "")),
            (Entity(DEFAULT, client_id), (user, kept)),
            (Entity(DEFAULT, DEFAULT), (user, kept)),
            (Entity(DEFAULT), (user, "")),
            (Entity(None, client_id), ("", kept)),
            (Entity(None, DEFAULT), ("", kept)),
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


def _kept(client_id: str) -> str:
    """What a client id is kept as."""
    if len(client_id) <= CLIENT_ID_LENGTH_MAX:
        return client_id
    return hashlib.sha256(client_id.encode(errors="surrogatepass")).hexdigest()
