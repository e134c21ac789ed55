"""The users of this broker and their SCRAM credentials, in memory and in the metadata store.

The one place where they change: what is stored is stored first. PLAIN is checked against the same
credentials.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kohort.broker.core.security.scram import Credential, made_up
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.scram import HASHES, ITERATIONS_MIN, Keys

USERS_MAX: Final = 100_000
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""By their numbers in the protocol."""

_SECRET: Final = "installation_secret"  # noqa: S105 - the name of one.
_PREFIX: Final = "user:"
_SECRET_BYTES: Final = 32


class CredentialKey(NamedTuple):
    """Which credential."""

    user: str
    mechanism: str


Change = tuple[CredentialKey, Credential | None]
"""A credential that takes the place of what there is; None takes it away."""


class Users:
    """See the module. Changes block on the disk, and take turns with the store's others."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._credentials: dict[CredentialKey, Credential] = {}
        self._given: dict[str, bytes] = {}
        self._listeners: list[Callable[[str], None]] = []
        for name, text in store.properties(_PREFIX).items():
            key = _key(name)
            self._credentials[key] = _read(text)
        secret = store.properties(_SECRET).get(_SECRET)
        if secret is None:
            secret = os.urandom(_SECRET_BYTES).hex()
            # A broker starts on a full disk; it keeps one for this run, and stores the next one's.
            with suppress(StorageError):
                store.set_properties({_SECRET: secret})
        self._secret = bytes.fromhex(secret)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call a function with the name of a user after each change of its credentials."""
        self._listeners.append(listener)

    def __len__(self) -> int:
        return len({key.user for key in self._credentials})

    def names(self) -> list[str]:
        """All users, by name."""
        return sorted({key.user for key in self._credentials})

    def credentials_of(self, user: str) -> Iterator[tuple[int, Credential]]:
        """Each with the number of its mechanism."""
        for number, mechanism in MECHANISMS.items():
            found = self._credentials.get(CredentialKey(user, mechanism))
            if found is not None:
                yield number, found

    def get(self, user: str, mechanism: str) -> Credential | None:
        """What is stored, if anything is."""
        return self._credentials.get(CredentialKey(user, mechanism))

    def find(self, mechanism: str, user: str) -> Credential:
        """What a client that claims to be `user` is answered from, made up if there is none."""
        found = self._credentials.get(CredentialKey(user, mechanism))
        if found is not None:
            return found
        return made_up(mechanism, user, self._secret, self._usual_iterations(mechanism))

    def any_of(self, user: str) -> tuple[str, Credential]:
        """A credential to check a password against, and its mechanism; made up if need be."""
        for mechanism in HASHES:
            found = self._credentials.get(CredentialKey(user, mechanism))
            if found is not None:
                return mechanism, found
        usual = Counter(key.mechanism for key in self._credentials).most_common(1)
        mechanism = usual[0][0] if usual else next(iter(HASHES))
        return mechanism, self.find(mechanism, user)

    def store_changes(self, changes: Iterable[Change]) -> None:
        """Make changes durable; `apply` follows, on the loop. Raises StorageError."""
        self._store.set_properties({_name(key): _text(new) for key, new in changes})

    def apply(self, changes: Iterable[Change]) -> None:
        """Let what was stored count from now on."""
        for key, new in changes:
            if new is None:
                self._credentials.pop(key, None)
            else:
                self._credentials[key] = new
            for listener in self._listeners:
                listener(key.user)

    def _usual_iterations(self, mechanism: str) -> int:
        counts = Counter(
            one.iterations for key, one in self._credentials.items() if key.mechanism == mechanism
        )
        return counts.most_common(1)[0][0] if counts else ITERATIONS_MIN


def users_in(store: MetadataStore) -> Mapping[CredentialKey, Credential]:
    """What is stored, for a broker that does not run."""
    return {_key(name): _read(text) for name, text in store.properties(_PREFIX).items()}


def _name(key: CredentialKey) -> str:
    return f"{_PREFIX}{key.mechanism}:{key.user}"


def _key(name: str) -> CredentialKey:
    mechanism, _, user = name.removeprefix(_PREFIX).partition(":")
    return CredentialKey(user, mechanism)


def _text(credential: Credential | None) -> str | None:
    if credential is None:
        return None
    return json.dumps(
        {
            "salt": base64.b64encode(credential.salt).decode(),
            "stored_key": base64.b64encode(credential.keys.stored_key).decode(),
            "server_key": base64.b64encode(credential.keys.server_key).decode(),
            "iterations": credential.iterations,
        }
    )


def _read(text: str) -> Credential:
    found = json.loads(text)
    keys = Keys(base64.b64decode(found["stored_key"]), base64.b64decode(found["server_key"]))
    return Credential(base64.b64decode(found["salt"]), keys, found["iterations"])
