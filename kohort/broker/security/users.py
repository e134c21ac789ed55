"""The users of this broker and their SCRAM credentials, in memory and in the metadata store.

All changes of users go through here, and are stored before they take effect. PLAIN is checked
against the same credentials. A file may give more users; a user with any stored credential has none
of the file's: otherwise an old password could stay valid for another mechanism.
"""

import base64
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from kohort.broker.core.security.scram import (
    USUAL_PROPERTIES,
    Credential,
    VisibleProperties,
    made_up,
)
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.scram import HASHES, ITERATIONS_MIN, Keys

USERS_MAX: Final = 100_000
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""Mechanisms by their numbers in the protocol."""

_SECRET: Final = "installation_secret"  # noqa: S105 - a name, not a secret.
USER: Final = "user:"
"""Prefix of the names of properties that are credentials."""
_SECRET_BYTES: Final = 32


class CredentialKey(NamedTuple):
    """Identifies a credential."""

    user: str
    mechanism: str


Change = tuple[CredentialKey, Credential | None]
"""A credential that replaces the current one; None removes it."""


class Users:
    """See the module. Changes block on the disk, and take turns with other writers of the store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._stored = {
            key_of(name): read_credential(text) for name, text in store.properties(USER).items()
        }
        self._given: dict[CredentialKey, Credential] = {}
        """Credentials that the file gives."""
        self._credentials = dict(self._stored)
        """Credentials in force."""
        self._listeners: list[Callable[[str], None]] = []
        self._secret = b""
        self._looks: dict[str, Counter[VisibleProperties]] = {
            mechanism: Counter() for mechanism in HASHES
        }
        """The looks of stored credentials and how many have each, by mechanism."""
        self._first: dict[str, str] = {}
        """The mechanism of a user's first credential, which decides on passwords, by user."""
        for user in {key.user for key in self._credentials}:
            self._note_first(user)
        self._usual: _Usual | None = None
        for key, one in self._credentials.items():
            self._looks[key.mechanism][one.look] += 1

    def load_secret(self) -> None:
        """Load or create the secret that credentials of unknown users are derived from. `find` and
        `work_for` need it. Blocks on the disk.
        """
        secret = self._store.properties(_SECRET).get(_SECRET)
        if secret is None:
            secret = os.urandom(_SECRET_BYTES).hex()
            # A broker starts on a full disk: it keeps this one for this run only.
            with suppress(StorageError):
                self._store.set_properties({_SECRET: secret})
        self._secret = bytes.fromhex(secret)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Call a function with the name of a user after each change of its credentials."""
        self._listeners.append(listener)

    def __len__(self) -> int:
        return len(self._first)

    def names(self) -> list[str]:
        """The names of all users, sorted."""
        return sorted(self._first)

    def credentials_of(self, user: str) -> Iterator[tuple[int, Credential]]:
        """Yield each credential of a user with the number of its mechanism."""
        for number, mechanism in MECHANISMS.items():
            found = self._credentials.get(CredentialKey(user, mechanism))
            if found is not None:
                yield number, found

    def get(self, user: str, mechanism: str) -> Credential | None:
        """The credential in force, stored or from the file; None if there is none."""
        return self._credentials.get(CredentialKey(user, mechanism))

    def is_stored(self, key: CredentialKey) -> bool:
        """Whether the store has such a credential, so that it can be removed."""
        return key in self._stored

    def find(self, mechanism: str, user: str) -> Credential:
        """The credential for answering a client that claims to be `user`; made up if unknown."""
        assert self._secret, "loaded before clients come"
        # For every name, so that the time taken does not reveal which users exist.
        made = made_up(mechanism, user, self._secret, self._found_usual().looks[mechanism])
        return self._credentials.get(CredentialKey(user, mechanism), made)

    def work_for(self, user: str) -> "list[PasswordWork]":
        """The hashes to compute for a password that was sent in plain text.

        The user's first credential decides. The total work is the same for every user, whichever
        mechanisms and iterations it has, so that the time taken does not reveal which users exist.
        """
        decides = self._first.get(user)
        found = []
        for mechanism, rounds in self._found_usual().rounds.items():
            one = self.find(mechanism, user)
            if mechanism != decides:
                one = one._replace(is_made_up=True)
            found.append(PasswordWork(mechanism, one, rounds))
        return found

    def store_changes(self, changes: Iterable[Change]) -> None:
        """Make changes durable; the caller then calls `apply` on the loop. Raises StorageError."""
        self._store.set_properties({property_of(key): credential_text(new) for key, new in changes})

    def apply(self, changes: Iterable[Change]) -> None:
        """Put stored changes into effect."""
        self._apply(self._stored, changes)

    def apply_given(self, changes: Iterable[Change]) -> None:
        """Put changes of the users in the file into effect."""
        self._apply(self._given, changes)

    def _apply(self, source: dict[CredentialKey, Credential], changes: Iterable[Change]) -> None:
        users: dict[str, None] = {}
        for key, new in changes:
            users[key.user] = None
            if new is None:
                source.pop(key, None)
            else:
                source[key] = new
        for user in users:
            self._settle(user)
        self._usual = None

    def _settle(self, user: str) -> None:
        """Determine a user's credentials in force; listeners are called if they changed."""
        keys = [CredentialKey(user, mechanism) for mechanism in HASHES]
        source = self._stored if any(key in self._stored for key in keys) else self._given
        is_other = False
        for key in keys:
            before, now = self._credentials.pop(key, None), source.get(key)
            is_other |= before != now
            looks = self._looks[key.mechanism]
            if before is not None:
                looks[before.look] -= 1
                if not looks[before.look]:
                    del looks[before.look]
            if now is not None:
                self._credentials[key] = now
                looks[now.look] += 1
        self._note_first(user)
        if is_other:
            for listener in self._listeners:
                listener(user)

    def _found_usual(self) -> "_Usual":
        """The properties of most credentials, computed once after each change."""
        if self._usual is None:
            looks = {
                mechanism: max(found, key=found.__getitem__, default=USUAL_PROPERTIES)
                for mechanism, found in self._looks.items()
            }
            rounds = {
                mechanism: max((look.iterations for look in found), default=ITERATIONS_MIN)
                for mechanism, found in self._looks.items()
            }
            decide = set(self._first.values()) or {next(iter(HASHES))}
            self._usual = _Usual(looks, {one: rounds[one] for one in HASHES if one in decide})
        return self._usual

    def _note_first(self, user: str) -> None:
        self._first.pop(user, None)
        for mechanism in HASHES:
            if CredentialKey(user, mechanism) in self._credentials:
                self._first[user] = mechanism
                return


class PasswordWork(NamedTuple):
    """One hashing of a password. It can be right only with a credential that is not made up."""

    mechanism: str
    credential: Credential
    rounds: int
    """Iterations that are always done: no credential of the mechanism has more."""


class _Usual(NamedTuple):
    """The basis of credentials that are made up for unknown users."""

    looks: Mapping[str, VisibleProperties]
    """The usual look of a credential, by mechanism."""
    rounds: Mapping[str, int]
    """The most iterations of any credential, by mechanism that decides on a user's password."""


def property_of(key: CredentialKey) -> str:
    """The name of the property that a credential is kept in."""
    return f"{USER}{key.mechanism}:{key.user}"


def key_of(name: str) -> CredentialKey:
    """The key of the credential that the property of that name holds."""
    mechanism, _, user = name.removeprefix(USER).partition(":")
    return CredentialKey(user, mechanism)


def credential_text(credential: Credential | None) -> str | None:
    """The value of the property; None for a credential to remove."""
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


def read_credential(text: str) -> Credential:
    """The credential in the value of a property."""
    found = json.loads(text)
    keys = Keys(base64.b64decode(found["stored_key"]), base64.b64decode(found["server_key"]))
    return Credential(base64.b64decode(found["salt"]), keys, found["iterations"])
