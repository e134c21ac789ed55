"""Client quotas: their entities, a client's limit, and the account on which a client is charged.

Defined by KIP-13, KIP-55, KIP-124, KIP-599 and KIP-612. An entity is a user, a client id, or both,
or else an address. Each of these can also be `DEFAULT`, which stands for all names without a limit
of their own. Each client is charged on its own account: a default limits each client, not all
together.
"""

import math
from collections.abc import Iterator, Mapping
from functools import partial
from ipaddress import ip_address
from typing import Final, NamedTuple

from kohort.broker.core.recently_used import RecentlyUsed
from kohort.broker.core.security.account import WINDOW_MS, WINDOWS, Account, Accounts, Rate


class TokenBucket:
    """The tokens of one account, each for one partition created or deleted (KIP-599). Times are
    monotonic milliseconds.

    Kafka's arithmetic: the bucket gains `limit` tokens a second, up to the amount of all quota
    windows together. A request may take more tokens than available: the next one must wait until
    the debt is refilled.
    """

    __slots__ = ("_saved_ms", "_seen_ms", "_tokens")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._saved_ms = windows * window_ms
        """The time in which an empty bucket fills up."""
        self._seen_ms: int | None = None
        self._tokens = 0.0

    def take(self, amount: int, limit: float, now_ms: int) -> None:
        """Take `amount` tokens; the balance may become negative. The bucket gains `limit` tokens a
        second.
        """
        self._refill(limit, now_ms)
        self._tokens -= amount

    def debt_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the balance is no longer negative; 0 if it is not negative now."""
        self._refill(limit, now_ms)
        return max(0, round(-self._tokens / limit * 1_000))

    def _refill(self, limit: float, now_ms: int) -> None:
        most = limit * self._saved_ms / 1_000
        if self._seen_ms is None:
            self._tokens = most
        else:
            self._tokens = min(most, self._tokens + limit * (now_ms - self._seen_ms) / 1_000)
        self._seen_ms = now_ms


USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = 3
"""The number of entity types: user, client id, address."""

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
_OF_REQUESTS: Final = (REQUEST, PRODUCER, CONSUMER)
"""Limits on requests, in the order of the fields of `Accounts`."""
KEYS: Final = frozenset({PRODUCER, CONSUMER, REQUEST, MUTATION})
"""Quota keys of users and client ids: bytes a second, percent of the event loop thread's time,
partitions created or deleted a second."""
CONNECTION: Final = "connection_creation_rate"
KEYS_OF_IP: Final = frozenset({CONNECTION})
"""Quota keys of addresses: new connections a second."""
_WHOLE_MAX: Final = {PRODUCER: 2**63 - 1, CONSUMER: 2**63 - 1, CONNECTION: 2**31 - 1}
"""Limits that are whole numbers, and the largest value of each."""

ACCOUNTS_MAX: Final = 100_000
"""Maximum accounts; above it, the least recently used one is dropped."""

HOLDING_MAX: Final = 10_000
"""Maximum clients whose limit is cached; above it, the whole cache is dropped."""

CLIENT_ID_LENGTH_MAX: Final = 255
"""Longer client ids are stored as digests: a client may send a new one of 32 KB in each request."""


class QuotaError(Exception):
    """An invalid limit or entity; the text is sent to the client."""


class Default:
    """The type of `DEFAULT`, which stands for all names without a limit of their own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<default>"


DEFAULT: Final = Default()
Name = str | Default | None
"""The user, client id or address of an entity; None if the entity does not have one."""


class Entity(NamedTuple):
    user: Name = None
    client_id: Name = None
    ip: Name = None

    @property
    def keys(self) -> frozenset[str]:
        """The quota keys that are allowed for this entity."""
        return KEYS if self.ip is None else KEYS_OF_IP

    def parts(self) -> Iterator[tuple[str, str | None]]:
        """Yield (type, name) as in the protocol, with None for the default."""
        for kind, name in ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip)):
            if name is not None:
                yield kind, name if isinstance(name, str) else None


def entity_of(parts: list[tuple[str, str | None]]) -> Entity:
    """Return the quota entity of these (type, name) pairs. Raises QuotaError if it is invalid."""
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


class Quotas:
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
        """Accounts by (quota key, user, client id); "" for a user or client id: shared by all."""
        self._buckets: RecentlyUsed[tuple[str, str], TokenBucket] = RecentlyUsed(
            lambda: TokenBucket(mutation_windows, mutation_window_ms), ACCOUNTS_MAX
        )
        self._of_clients: dict[tuple[str, str], Accounts] = {}
        """Cached `Accounts` by user and client id; cleared when limits change, and when an account
        is added, which may have evicted another one.
        """

    def set(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace the limits of an entity; an empty mapping removes it."""
        if limits:
            self.limits[entity] = dict(limits)
        else:
            self.limits.pop(entity, None)
        self._forget()

    def accounts(self, user: str, client_id: str) -> Accounts:
        """Return the accounts for a client's requests, valid while their `is_current` is true."""
        kept = _kept(client_id)
        try:
            return self._of_clients[user, kept]
        except KeyError:
            by_key = [self.account(key, user, client_id) for key in _OF_REQUESTS]
            if len(self._of_clients) >= HOLDING_MAX:
                self._forget()
            accounts = self._of_clients[user, kept] = Accounts(kept, *by_key)
            return accounts

    def account(self, key: str, user: str, client_id: str) -> Account | None:
        """Return a client's account for a quota on bytes or time; None if there is no limit."""
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
            quotas = limits.get(entity)
            if quotas is not None and key in quotas:
                return quotas[key], account
        return None

    def charge(self, key: str, user: str, client_id: str, amount: int, now_ms: int) -> int:
        """Charge the account of a client, if it has one; see `Account.charge`."""
        account = self.account(key, user, client_id)
        return 0 if account is None else account.charge(amount, now_ms)

    def take_mutations(self, user: str, client_id: str, amount: int, now_ms: int) -> int:
        """Record the creation or deletion of `amount` partitions. Return the milliseconds until the
        balance is no longer negative; 0 if it is not negative or there is no limit. With an
        `amount` of 0, only read the balance.
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
            quotas = self.limits.get(entity, {}).get(CONNECTION)
            if quotas is not None:
                return quotas
        return None


def _kept(client_id: str) -> str:
    """Return a client id, or its digest, for use as a key."""
    if len(client_id) <= CLIENT_ID_LENGTH_MAX:
        return client_id
    import hashlib  # noqa: PLC0415 - 0.7 MiB, for the first long client id.

    return hashlib.sha256(client_id.encode(errors="surrogatepass")).hexdigest()
