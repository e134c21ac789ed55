"""Client quotas: stored in the metadata store before they take effect, and charged for each
request.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kohort.broker.core.security.account import Accounts
from kohort.broker.core.security.quotas import Entity, Quotas, check_limit, entity_of
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.storage.metadata.store import MetadataStore

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.security.rules import Disk

CLIENT_QUOTA: Final = "client_quota:"
"""Name prefix of the properties with the quotas of an entity."""
ENTITIES_MAX: Final = 100_000


class TooManyEntitiesError(Exception):
    """A rejected change: more entities would have quotas than `ENTITIES_MAX`."""


class LimitChange(NamedTuple):
    """A quota to set, or to remove if the value is None."""

    key: str
    value: float | None


def make_quotas(config: "BrokerConfig", store: MetadataStore, disk: "Disk") -> "ClientQuotas":
    quotas = Quotas(
        config.quota_window_num,
        config.quota_window_size_seconds * 1_000,
        config.controller_quota_window_num,
        config.controller_quota_window_size_seconds * 1_000,
    )
    return ClientQuotas(quotas, store, disk)


class ClientQuotas:
    """The quotas of all clients. For the event loop's thread only."""

    def __init__(self, quotas: Quotas, store: MetadataStore, disk: "Disk") -> None:
        self.quotas = quotas
        self._store = store
        self._disk = disk
        self._lock = asyncio.Lock()
        for key, text in store.properties(CLIENT_QUOTA).items():
            quotas.set(entity_in(key), json.loads(text))
        self.is_limiting = self._limits_clients()
        """Whether any client has a quota; otherwise requests are not charged."""

    def accounts(self, connection: ConnectionInfo, client_id: str | None) -> Accounts:
        """Return the quota accounts of a request's client, cached in the connection."""
        name = client_id or ""
        accounts = connection.accounts
        session = connection.session
        if accounts.is_current and accounts.client_id == name and connection.accounts_of is session:
            return accounts
        accounts = self.quotas.accounts(session.principal.name, name)
        connection.accounts, connection.accounts_of = accounts, session
        return accounts

    def at_once(self, connection: ConnectionInfo, client_id: str | None) -> int:
        """Return the maximum size of a Fetch response to the client, in bytes."""
        return self.accounts(connection, client_id).at_once

    async def alter(
        self, changes: Mapping[Entity, Sequence[LimitChange]], *, validate_only: bool
    ) -> None:
        """Set and remove quotas of entities, all or none. Removing an unset quota has no effect.

        Raises QuotaError, TooManyEntitiesError or StorageError.
        """
        await asyncio.shield(self._alter(changes, validate_only=validate_only))

    async def _alter(
        self, changes: Mapping[Entity, Sequence[LimitChange]], *, validate_only: bool
    ) -> None:
        async with self._lock:
            limits = {entity: self._changed(entity, of) for entity, of in changes.items()}
            known = self.quotas.limits
            new = sum(1 for entity, of in limits.items() if of and entity not in known)
            if len(known) + new > ENTITIES_MAX:
                raise TooManyEntitiesError(f"At most {ENTITIES_MAX} entities can have limits.")
            if validate_only or not limits:
                return
            stored = {
                property_of(entity): json.dumps(of) if of else None for entity, of in limits.items()
            }
            await self._disk.run(self._store.set_properties, stored)
            for entity, of in limits.items():
                self.quotas.set(entity, of)
            self.is_limiting = self._limits_clients()

    def _limits_clients(self) -> bool:
        return any(entity.ip is None for entity in self.quotas.limits)

    def _changed(self, entity: Entity, changes: Sequence[LimitChange]) -> dict[str, float]:
        limits = dict(self.quotas.limits.get(entity, {}))
        for key, value in changes:
            if value is None:
                limits.pop(key, None)
            else:
                check_limit(entity, key, value)
                limits[key] = value
        return limits


def property_of(entity: Entity) -> str:
    return CLIENT_QUOTA + json.dumps(list(entity.parts()))


def entity_in(name: str) -> Entity:
    return entity_of([(kind, part) for kind, part in json.loads(name.removeprefix(CLIENT_QUOTA))])
